# What a node shows, for chaos/collect.py: sections that begin with a line "@@ word name".
# Only `ip`, files and /proc: nothing here is a program of kube-rdma.
own() {
  echo "@@ netns $1 $2"
  shift 2
  "$@" ip -j -d address
  echo "@@ rules"
  "$@" ip -j rule
  echo "@@ routes"
  "$@" ip -j route show table all
  echo "@@ verbs"
  "$@" rdma -j link 2>/dev/null
}
own - "$(stat -Lc %i /proc/1/ns/net)" env
for path in /run/netns/*; do
  inode=$(stat -c %i "$path" 2>/dev/null) || continue # it may go at any moment
  own "${path##*/}" "$inode" nsenter --net="$path" 2>/dev/null
done
echo "@@ processes"
grep -H -m1 -o 'pod[0-9a-f][0-9a-f-]*' /proc/[0-9]*/cgroup 2>/dev/null |
  while IFS=: read -r path pod; do
    echo "$(stat -Lc %i "${path%cgroup}ns/net" 2>/dev/null) ${pod#pod}"
  done
echo "@@ rdma"
ls /sys/class/infiniband
echo "@@ devices"
ls /dev/infiniband
echo "@@ settings"
cd /run/kube-rdma/settings 2>/dev/null && ls -d -- * claims/* metadata/* 2>/dev/null
echo "@@ chained"
grep -l kube-rdma /etc/cni/net.d/*.conflist
for path in /var/lib/kube-rdma/*/* /run/cdi/kube-rdma* /var/lib/kubelet/dra_manager_state \
  /var/lib/kubelet/device-plugins/kubelet_internal_checkpoint; do
  [ -f "$path" ] || continue
  echo "@@ file $path"
  cat "$path"
  echo
done
true
