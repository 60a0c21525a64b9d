# What a pod was given, as it sees that itself when its container starts: `netdev` is an interface of
# its network namespace besides lo and eth0, `rdma` an entry of /sys/class/infiniband, `verbs` a
# device node /dev/infiniband/uverbs*. EXPECT names those that have to be there, with blanks between.
# If some are not, it looks for LATE seconds longer. One line goes to stdout and to the termination
# log, where `kubectl get pods -o json` shows it. Only /bin/sh and sleep are needed.

netdevs() {
  while read -r line; do
    case $line in
      *:*) name=${line%%:*} ;;
      *) continue ;; # the head of the table
    esac
    case $name in
      # Those that the kernel puts into each namespace where a driver of tunnels is loaded
      # (net.core.fb_tunnels_only_for_init_net).
      lo | eth0 | tunl0 | sit0 | ip6tnl0 | gre0 | gretap0 | erspan0 | ip_vti0 | ip6_vti0 | ip6gre0) ;;
      *) echo "$name" ;;
    esac
  done </proc/net/dev
}

rdmas() {
  for path in /sys/class/infiniband/*; do
    [ ! -e "$path" ] || echo "${path##*/}"
  done
}

verbs() {
  for path in /dev/infiniband/uverbs*; do
    [ ! -c "$path" ] || echo "${path##*/}"
  done
}

joined() {
  text=
  for word in "$@"; do text=$text${text:+,}$word; done
  echo "$text"
}

look() {
  netdev=$(joined $(netdevs)) rdma=$(joined $(rdmas)) verbs=$(joined $(verbs)) lacking=
  for what in $EXPECT; do
    case $what in
      netdev) seen=$netdev ;;
      rdma) seen=$rdma ;;
      verbs) seen=$verbs ;;
    esac
    [ -n "$seen" ] || lacking=$lacking${lacking:+,}$what
  done
}

look
first="lacks=$lacking netdev=$netdev rdma=$rdma verbs=$verbs" late=
seconds=0
while [ -n "$lacking" ] && [ "$seconds" -lt "$LATE" ]; do
  sleep 1
  seconds=$((seconds + 1)) late=
  look
  [ -n "$lacking" ] || late=$seconds
done
line="fail-open $first late=$late"
echo "$line"
echo "$line" >/dev/termination-log
