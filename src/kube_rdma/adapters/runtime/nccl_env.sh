#!/bin/sh
# What NCCL, UCX, NVSHMEM and inference engines have to be told to use the RDMA devices of this container.
# docs/settings.md has each variable with its source.
#
#     . nccl_env.sh                               exports the variables
#     sh nccl_env.sh [--format shell|conf|json]   prints them
#     NCCL_ENV=vke                                before either: as the script in VKE's document does it
#     NCCL_ENV=vllm                               before either: for vLLM too, a card for each GPU
#
# For any POSIX shell; it starts no program, and leaves variables, functions and options of the shell
# as they were. NCCL_ENV_ROOT is a folder that stands for /, in tests.
#
# A device counts when this container may open it, and a GID when it is RoCE v2, its interface has a
# carrier and its address is one of this network namespace: in shared RDMA namespace mode sysfs
# shows those of the neighbours too, on interfaces of the same name. Of these the devices with the highest
# rate are taken, as in VKE's script. Returns 1 where there are none, and where their GID indexes differ and
# no range of addresses tells them from others: no index is guessed.

# --- reading ------------------------------------------------------------------------------------------

# _kr_text: a file as $(cat) would have it, without a process; empty if it cannot be read.
_kr_read() {
    _kr_text=
    [ -f "$1" ] && [ -r "$1" ] || return 0
    { while IFS= read -r _kr_line || [ -n "$_kr_line" ]; do
        _kr_text=$_kr_text$_kr_line$_kr_newline
    done <"$1"; } 2>/dev/null
    while :; do
        case $_kr_text in
        *"$_kr_newline") _kr_text=${_kr_text%"$_kr_newline"} ;;
        *) return 0 ;;
        esac
    done
}

# _kr_names: the entries of a folder as $(ls) would have them.
_kr_list() {
    _kr_names=
    for _kr_path in "$1"/*; do
        [ -e "$_kr_path" ] || [ -h "$_kr_path" ] || continue
        _kr_names=$_kr_names${_kr_path##*/}$_kr_newline
    done
}

# --- VKE's script, its mistakes included --------------------------------------------------------------
# A test of `[` with another number of words than it takes is an error there, and counts as not passed.

_kr_strict_gid() { # port gid
    _kr_read "$1/gids/$2"
    _kr_gid=$_kr_text
    set -- "$1" "$2" $_kr_gid
    shift 2
    _kr_first=$*
    set -- ${_kr_first%%:*}
    [ $# -ne 1 ] || [ "$1" = 0000 ] || return 1
    set -- $_kr_gid
    [ $# -ne 1 ] || [ "$1" != "$_kr_no_gid" ]
}

_kr_strict_type() { # port gid
    _kr_read "$1/gid_attrs/types/$2"
    _kr_version=
    while [ -n "$_kr_text" ]; do
        _kr_line=${_kr_text%%"$_kr_newline"*}
        case $_kr_text in
        *"$_kr_newline"*) _kr_text=${_kr_text#*"$_kr_newline"} ;;
        *) _kr_text= ;;
        esac
        case $_kr_line in
        *[Vv]*) _kr_version="$_kr_version ${_kr_line#"${_kr_line%%[Vv]*}"}" ;;
        esac
    done
    set -- $_kr_version
    [ $# -ne 1 ] || [ "$1" = v2 ] || [ "$1" = V2 ]
}

# Whether `(( ! text == 1 ))` fails: text is a number that is not 0, or none at all.
_kr_strict_carrier() {
    case $1 in
    [A-Za-z_]*[!A-Za-z0-9_]* | '' | [!0-9A-Za-z_]* | [0-9]*[!0-9]* | 0*[89]*) return 0 ;;
    [A-Za-z_]*) return 1 ;;
    *) [ -n "${1#"${1%%[!0]*}"}" ] ;;
    esac
}

_kr_strict_up() { # port gid
    _kr_read "$1/gid_attrs/ndevs/$2"
    _kr_netdev=$_kr_root/sys/class/net/$_kr_text
    [ -f "$_kr_netdev/dev_id" ] && [ -f "$_kr_netdev/carrier" ] || return 1
    _kr_read "$_kr_netdev/carrier"
    _kr_strict_carrier "$_kr_text"
}

# Whether `[[ first -gt second ]]`; what is no number is an error.
_kr_strict_more() {
    for _kr_number in "$1" "$2"; do
        case $_kr_number in *[!0-9]* | 0*[89]*) return 1 ;; esac
    done
    [ "$((${1:-0}))" -gt "$((${2:-0}))" ]
}

_kr_strict() {
    _kr_found=
    _kr_list "$_kr_ib"
    for _kr_device in $_kr_names; do
        _kr_list "$_kr_ib/$_kr_device/ports"
        for _kr_port in $_kr_names; do
            _kr_at=$_kr_ib/$_kr_device/ports/$_kr_port
            _kr_list "$_kr_at/gids"
            for _kr_index in $_kr_names; do
                _kr_strict_gid "$_kr_at" "$_kr_index" && _kr_strict_type "$_kr_at" "$_kr_index" &&
                    _kr_strict_up "$_kr_at" "$_kr_index" || continue
                _kr_found="$_kr_found$_kr_device $_kr_port $_kr_index$_kr_newline"
            done
        done
    done
    if [ -z "$_kr_found" ]; then
        _kr_nothing
        return 1
    fi
    _kr_best= _kr_hcas= _kr_gid_index= _kr_differ=
    set -- $_kr_found
    while [ $# -gt 2 ]; do
        _kr_read "$_kr_ib/$1/ports/$2/rate"
        _kr_rate=${_kr_text%% *}
        if [ -z "$_kr_best" ] || _kr_strict_more "$_kr_rate" "$_kr_best"; then
            _kr_hcas=$1:$2 _kr_gid_index=$3 _kr_differ= _kr_best=$_kr_rate
        elif [ "$_kr_rate" = "$_kr_best" ]; then
            _kr_hcas=$_kr_hcas,$1:$2
            [ "$_kr_gid_index" = "$3" ] || _kr_differ=1
        fi
        shift 3
    done
    if [ -n "$_kr_differ" ]; then
        echo "rdma devs index inconsistent"
        return 1
    fi
    _kr_give NCCL_IB_HCA "$_kr_hcas"
    _kr_give NCCL_IB_GID_INDEX "$_kr_gid_index"
}

_kr_nothing() {
    echo "Not found RDMA device, list devices error"
    echo "Not found RDMA device, get max rate device error"
}

# --- what is this container's -------------------------------------------------------------------------

# _kr_own4: local addresses of this network namespace, each between blanks.
_kr_read_own4() {
    _kr_own4=' ' _kr_last=
    [ -r "$_kr_root/proc/net/fib_trie" ] || return 0
    while read -r _kr_a _kr_b _kr_c; do
        case "$_kr_a $_kr_b $_kr_c" in
        '|-- '*) _kr_last=$_kr_b ;;
        '/32 host LOCAL'*) _kr_own4="$_kr_own4$_kr_last " ;;
        esac
    done <"$_kr_root/proc/net/fib_trie"
}

# _kr_own6: 32 hexadecimal digits and the interface, each pair between blanks; not link-local.
_kr_read_own6() {
    _kr_own6=' '
    [ -r "$_kr_root/proc/net/if_inet6" ] || return 0
    while read -r _kr_a _kr_b _kr_b _kr_c _kr_b _kr_b; do
        [ "$_kr_c" = 20 ] || _kr_own6="$_kr_own6$_kr_a@$_kr_b "
    done <"$_kr_root/proc/net/if_inet6"
}

# _kr_granted: names of devices with a node that is in this container, each between blanks.
_kr_read_granted() {
    _kr_granted=' '
    for _kr_path in "$_kr_root"/sys/class/infiniband_verbs/uverbs*; do
        [ -e "$_kr_root/dev/infiniband/${_kr_path##*/}" ] || continue
        _kr_read "$_kr_path/ibdev"
        _kr_granted="$_kr_granted$_kr_text "
    done
}

# _kr_address: of a GID that maps an IPv4 address; fails for others.
_kr_mapped() {
    case $1 in
    0000:0000:0000:0000:0000:ffff:????:????) ;;
    *) return 1 ;;
    esac
    _kr_b=${1##*:} _kr_a=${1%:*}
    _kr_a=${_kr_a##*:}
    case $_kr_a$_kr_b in *[!0-9a-fA-F]*) return 1 ;; esac
    _kr_address=$((0x${_kr_a%??})).$((0x${_kr_a#??})).$((0x${_kr_b%??})).$((0x${_kr_b#??}))
}

# Whether a GID of the port is this container's; _kr_kind is the version of its address.
_kr_is_own() { # port gid
    _kr_read "$1/gids/$2"
    case $_kr_text in
    "$_kr_no_gid" | fe80:* | '') return 1 ;;
    esac
    _kr_gid=$_kr_text _kr_kind=6
    _kr_read "$1/gid_attrs/types/$2"
    case $_kr_text in *[Vv]2) ;; *) return 1 ;; esac
    _kr_read "$1/gid_attrs/ndevs/$2"
    case $_kr_text in '' | */* | .*) return 1 ;; esac
    _kr_interface=$_kr_text
    _kr_read "$_kr_root/sys/class/net/$_kr_interface/carrier"
    [ "$_kr_text" = 1 ] || return 1
    if _kr_mapped "$_kr_gid"; then
        _kr_kind=4
        case $_kr_own4 in *" $_kr_address "*) return 0 ;; esac
        return 1
    fi
    _kr_address=
    _kr_digits=
    _kr_rest=$_kr_gid:
    while [ -n "$_kr_rest" ]; do
        _kr_digits=$_kr_digits${_kr_rest%%:*} _kr_rest=${_kr_rest#*:}
    done
    case $_kr_own6 in *" $_kr_digits@$_kr_interface "*) return 0 ;; esac
    return 1
}

# _kr_chosen: index and address of the port's GID: the lowest of IPv4, else the lowest of IPv6.
_kr_choose() {
    _kr_chosen= _kr_chosen_kind=7
    _kr_list "$1/gids"
    for _kr_index in $_kr_names; do
        case $_kr_index in '' | *[!0-9]*) continue ;; esac
        _kr_is_own "$1" "$_kr_index" || continue
        if [ "$_kr_kind" -lt "$_kr_chosen_kind" ] ||
            { [ "$_kr_kind" -eq "$_kr_chosen_kind" ] && [ "$_kr_index" -lt "${_kr_chosen%% *}" ]; }; then
            _kr_chosen="$_kr_index ${_kr_address:--}" _kr_chosen_kind=$_kr_kind
        fi
    done
    [ -n "$_kr_chosen" ]
}

# _kr_tenths: a rate as sysfs writes it ("2.5 Gb/sec (1X SDR)"), in tenths; 0 for what is none.
_kr_to_tenths() {
    _kr_tenths=${1%% *}
    case $_kr_tenths in
    *.*) _kr_a=${_kr_tenths%%.*} _kr_b=${_kr_tenths#*.} ;;
    *) _kr_a=$_kr_tenths _kr_b=0 ;;
    esac
    _kr_b=${_kr_b%"${_kr_b#?}"}
    case $_kr_a$_kr_b in '' | *[!0-9]*) _kr_a=0 _kr_b=0 ;; esac
    _kr_a=${_kr_a#"${_kr_a%%[!0]*}"}
    _kr_tenths=$((${_kr_a:-0} * 10 + ${_kr_b:-0}))
}

_kr_add() { # device port index address
    _kr_read "$_kr_ib/$1/ports/$2/rate"
    _kr_to_tenths "$_kr_text"
    [ "$_kr_tenths" -ge "$_kr_best" ] || return 0
    [ "$_kr_tenths" -eq "$_kr_best" ] || _kr_found=
    _kr_best=$_kr_tenths
    _kr_found="$_kr_found$1 $2 $3 $4$_kr_newline"
}

_kr_find() {
    _kr_found= _kr_best=0
    for _kr_device in $_kr_granted; do
        case $_kr_device in
        *[!A-Za-z0-9_.@-]*)
            echo "nccl_env.sh: device $_kr_device is left out: its name cannot be a value." >&2
            continue
            ;;
        esac
        _kr_list "$_kr_ib/$_kr_device/ports"
        for _kr_port in $_kr_names; do
            _kr_at=$_kr_ib/$_kr_device/ports/$_kr_port
            _kr_read "$_kr_at/link_layer"
            if [ "$_kr_text" = InfiniBand ]; then
                _kr_read "$_kr_at/state"
                case $_kr_text in 4:*) _kr_add "$_kr_device" "$_kr_port" - - ;; esac
            elif _kr_choose "$_kr_at"; then
                _kr_add "$_kr_device" "$_kr_port" $_kr_chosen
            fi
        done
    done
}

# --- one index, or a range of addresses ---------------------------------------------------------------

_kr_number() { # of an IPv4 address: _kr_value
    _kr_value=0 _kr_rest=$1.
    while [ -n "$_kr_rest" ]; do
        _kr_value=$((_kr_value * 256 + ${_kr_rest%%.*})) _kr_rest=${_kr_rest#*.}
    done
}

# _kr_low, _kr_bits: the smallest range that has the addresses of all found devices.
_kr_cover() {
    _kr_bits=32 _kr_low=
    set -- $_kr_found
    while [ $# -gt 3 ]; do
        if [ "$3" != - ]; then
            [ "$4" != - ] || return 1 # an address of IPv6
            _kr_number "$4"
            [ -n "$_kr_low" ] || _kr_low=$_kr_value
            while [ "$((_kr_value >> (32 - _kr_bits)))" -ne "$((_kr_low >> (32 - _kr_bits)))" ]; do
                _kr_bits=$((_kr_bits - 1))
            done
        fi
        shift 4
    done
    _kr_low=$(((_kr_low >> (32 - _kr_bits)) << (32 - _kr_bits)))
}

# Whether no found device shows another's address in the range.
_kr_is_alone() {
    set -- $_kr_found
    while [ $# -gt 3 ]; do
        _kr_at=$_kr_ib/$1/ports/$2
        _kr_list "$_kr_at/gids"
        for _kr_index in $_kr_names; do
            _kr_read "$_kr_at/gids/$_kr_index"
            _kr_mapped "$_kr_text" || continue
            case $_kr_own4 in *" $_kr_address "*) continue ;; esac
            _kr_number "$_kr_address"
            [ "$((_kr_value >> (32 - _kr_bits)))" -ne "$((_kr_low >> (32 - _kr_bits)))" ] || return 1
        done
        shift 4
    done
}

# _kr_gid_index, or _kr_range where devices have different ones; fails where neither will do.
_kr_tell_apart() {
    _kr_gid_index= _kr_range= _kr_differ=
    set -- $_kr_found
    while [ $# -gt 3 ]; do
        if [ "$3" != - ]; then
            [ "${_kr_gid_index:-$3}" = "$3" ] || _kr_differ=1
            _kr_gid_index=$3
        fi
        shift 4
    done
    [ -n "$_kr_differ" ] || return 0
    _kr_gid_index=
    _kr_cover && _kr_is_alone || return 1
    _kr_range=$((_kr_low >> 24)).$((_kr_low >> 16 & 255)).$((_kr_low >> 8 & 255)).$((_kr_low & 255))
    _kr_range=$_kr_range/$_kr_bits
}

_kr_default_interface() {
    _kr_interface=
    [ -r "$_kr_root/proc/net/route" ] || return 0
    while read -r _kr_a _kr_b _kr_c; do
        [ "$_kr_b" != 00000000 ] || _kr_interface=${_kr_interface:-$_kr_a}
    done <"$_kr_root/proc/net/route"
}

_kr_mended() {
    _kr_read_own4
    _kr_read_own6
    _kr_read_granted
    _kr_find
    if [ -z "$_kr_found" ]; then
        _kr_nothing
        return 1
    fi
    if ! _kr_tell_apart; then
        echo "rdma devs index inconsistent"
        echo "nccl_env.sh: the devices have different GID indexes, and neighbours' addresses lie" \
            "between their own: give NCCL_IB_GID_INDEX to each process for its own device." >&2
        return 1
    fi
    _kr_hcas= _kr_names=
    set -- $_kr_found
    while [ $# -gt 3 ]; do
        _kr_hcas=$_kr_hcas${_kr_hcas:+,}$1:$2
        case ,$_kr_names, in *,"$1",*) ;; *) _kr_names=$_kr_names${_kr_names:+,}$1 ;; esac
        shift 4
    done
    _kr_give MC_MS_FILTERS "$_kr_names"
    _kr_give NCCL_IB_HCA "=$_kr_hcas"
    # vLLM puts each worker's own card before what is set, so that nothing may be.
    if [ "${NCCL_ENV-}" != vllm ] || ! _kr_is_rdma; then _kr_give_ucx; fi
    _kr_give NVSHMEM_HCA_LIST "$_kr_hcas"
    # Before 1.19 UCX drops all datagrams of vendors but one (openucx/ucx#10209).
    [ -z "$_kr_gid_index$_kr_range" ] || _kr_give UCX_UD_VERBS_ETH_DGID_CHECK n
    if [ -n "$_kr_gid_index" ]; then
        for _kr_text in NCCL_IB UCX_IB NVSHMEM_IB MC UCCL_IB UCCL_P2P_RDMA; do
            _kr_give "${_kr_text}_GID_INDEX" "$_kr_gid_index"
        done
        _kr_give FI_VERBS_GID_IDX "$_kr_gid_index"
    elif [ -n "$_kr_range" ]; then
        _kr_give NCCL_IB_ADDR_RANGE "$_kr_range"
        _kr_give NVSHMEM_IB_ADDR_RANGE "$_kr_range"
        echo "nccl_env.sh: the devices have different GID indexes: NCCL from 2.26.2 on finds them by" \
            "NCCL_IB_ADDR_RANGE, UCX by itself." >&2
    fi
    _kr_default_interface
    [ -n "$_kr_interface" ] || return 0
    _kr_give NCCL_SOCKET_IFNAME "=$_kr_interface"
    for _kr_text in GLOO_SOCKET TP_SOCKET NVSHMEM_BOOTSTRAP_UID_SOCK; do
        _kr_give "${_kr_text}_IFNAME" "$_kr_interface"
    done
}

# Whether UCX may use RDMA, by the list of transports that the job wants (UCX_TLS).
_kr_is_rdma() {
    case ,${UCX_TLS-}, in
    ,, | ,all, | ,^* | *,rc* | *,ud* | *,dc* | *,ib* | *,srd* | *,gga*) return 0 ;;
    *) return 1 ;;
    esac
}

# UCX takes the list for every transport: a job that wants TCP alone would have no device with it. The one
# of /etc/ucx/ucx.conf has to be undone for such a job.
_kr_give_ucx() {
    if _kr_is_rdma; then
        _kr_give UCX_NET_DEVICES "$_kr_hcas"
    elif [ -z "${UCX_NET_DEVICES-}" ]; then
        _kr_give UCX_NET_DEVICES all
    fi
}

# --- vLLM: a card for each GPU ------------------------------------------------------------------------
# Its workers take VLLM_GPU_NIC_PCIE_MAPPING, and set what VLLM_NIC_SELECTION_VARS names; one without the
# other is an error there (vllm/v1/executor/vllm_net_devices.py).

# _kr_shared: twice the folders that two places have in common, and one if they share a NUMA node.
_kr_share() { # place place
    _kr_shared=0 _kr_a=$1/ _kr_b=$2/
    while [ -n "$_kr_a" ] && [ "${_kr_a%%/*}" = "${_kr_b%%/*}" ]; do
        _kr_shared=$((_kr_shared + 2)) _kr_a=${_kr_a#*/} _kr_b=${_kr_b#*/}
    done
    _kr_read "$1/numa_node"
    _kr_a=$_kr_text
    _kr_read "$2/numa_node"
    [ -z "$_kr_text" ] || [ "$_kr_text" != "$_kr_a" ] || _kr_shared=$((_kr_shared + 1))
}

# _kr_nics: place and number of uses of each found device on a PCI function of its own.
_kr_read_nics() {
    _kr_nics= _kr_port=
    set -- $_kr_found
    while [ $# -gt 3 ]; do
        _kr_text=$(cd -P -- "$_kr_ib/$1/device" 2>/dev/null && pwd -P)
        case ${_kr_text##*/} in
        ????*:??:??.?)
            _kr_nics="$_kr_nics$_kr_text 0$_kr_newline"
            [ "${_kr_port:-$2}" = "$2" ] || _kr_port=-
            _kr_port=${_kr_port:-$2}
            ;;
        esac
        shift 4
    done
}

# Whether this is a virtual machine, whose GPUs and cards are passed through: X86_FEATURE_HYPERVISOR.
_kr_read_virtual() {
    _kr_virtual=
    [ -r "$_kr_root/proc/cpuinfo" ] || return 0
    while read -r _kr_a _kr_b; do
        [ "$_kr_a" = flags ] || continue
        case "$_kr_b " in *' hypervisor '*) _kr_virtual=1 ;; esac
        return 0
    done <"$_kr_root/proc/cpuinfo"
}

# Whether two places are below one bridge of a virtual machine. A GPU and a card there that were passed
# through moved wrong data, and those below different bridges did not (ai-dynamo/dynamo#12463).
_kr_is_broken() { # place place
    [ -n "$_kr_virtual" ] || return 1
    _kr_a=${1#*/devices/pci} _kr_b=${2#*/devices/pci}
    [ "${_kr_a%%/*}" = "${_kr_b%%/*}" ] || return 1
    _kr_a=${_kr_a#*/} _kr_b=${_kr_b#*/}
    [ "${_kr_a%%/*}" = "${_kr_b%%/*}" ]
}

# _kr_nearest: of a GPU, among equally near ones the one that the fewest others have.
_kr_choose_nic() { # place of the GPU
    _kr_path=$1 _kr_best=-1 _kr_nearest= _kr_uses=
    set -- $_kr_nics
    while [ $# -gt 1 ]; do
        if _kr_is_broken "$_kr_path" "$1"; then shift 2 && continue; fi
        _kr_share "$_kr_path" "$1"
        if [ "$_kr_shared" -gt "$_kr_best" ] ||
            { [ "$_kr_shared" -eq "$_kr_best" ] && [ "$2" -lt "$_kr_uses" ]; }; then
            _kr_best=$_kr_shared _kr_nearest=$1 _kr_uses=$2
        fi
        shift 2
    done
    set -- $_kr_nics
    _kr_nics=
    while [ $# -gt 1 ]; do
        _kr_uses=$2
        [ "$1" != "$_kr_nearest" ] || _kr_uses=$(($2 + 1))
        _kr_nics="$_kr_nics$1 $_kr_uses$_kr_newline"
        shift 2
    done
}

_kr_vllm() {
    _kr_read_nics
    _kr_read_virtual
    _kr_pairs= _kr_left=
    _kr_list "$_kr_root/sys/bus/pci/devices"
    for _kr_gpu in $_kr_names; do
        _kr_read "$_kr_root/sys/bus/pci/devices/$_kr_gpu/class"
        case $_kr_text in
        0x03* | 0x12*)
            _kr_choose_nic "$(cd -P -- "$_kr_root/sys/bus/pci/devices/$_kr_gpu" && pwd -P)"
            if [ -n "$_kr_nearest" ]; then
                _kr_pairs=$_kr_pairs${_kr_pairs:+,}$_kr_gpu=${_kr_nearest##*/}
            elif [ -n "$_kr_nics" ]; then
                _kr_left=$_kr_gpu
            fi
            ;;
        esac
    done
    if [ -n "$_kr_left" ]; then
        echo "nccl_env.sh: in this virtual machine GPU $_kr_left has no card but below its own bridge, and" \
            "such a pair may write wrong data: vLLM is told of none. Set VLLM_GPU_NIC_PCIE_MAPPING" \
            "if you know better." >&2
        _kr_give_ucx
    elif [ -z "$_kr_pairs" ]; then
        echo "nccl_env.sh: no GPU or no card with a PCI function: vLLM is told of none." >&2
        _kr_give_ucx
    elif [ "$_kr_port" = - ]; then
        echo "nccl_env.sh: the cards have different ports, and vLLM takes one for all: it is told" \
            "of none." >&2
        _kr_give_ucx
    else
        _kr_give VLLM_GPU_NIC_PCIE_MAPPING "$_kr_pairs"
        _kr_give VLLM_NIC_SELECTION_VARS "UCX_NET_DEVICES:$_kr_port"
    fi
}

# --- giving -------------------------------------------------------------------------------------------

_kr_give() { # name value
    case $_kr_format in
    export) export "$1=$2" ;;
    shell) echo "export $1='$2'" ;;
    conf) echo "$1=$2" ;;
    json) _kr_json="$_kr_json${_kr_json:+, }\"$1\": \"$2\"" ;;
    esac
}

_kr_main() {
    _kr_newline='
'
    _kr_no_gid=0000:0000:0000:0000:0000:0000:0000:0000
    _kr_root=${NCCL_ENV_ROOT-} _kr_json= _kr_format=export
    _kr_ib=$_kr_root/sys/class/infiniband
    if [ "${0##*/}" = nccl_env.sh ]; then
        _kr_format=shell
        [ $# -eq 0 ] || _kr_format=$1=${2-}
        case "$_kr_format $#" in
        'shell 0') ;;
        '--format=shell 2' | '--format=conf 2' | '--format=json 2') _kr_format=${_kr_format#*=} ;;
        *)
            echo "nccl_env.sh: it takes --format shell, conf or json, and nothing else." >&2
            return 2
            ;;
        esac
    fi
    case ${NCCL_ENV-} in
    '') _kr_mended ;;
    vke | strict-seed) _kr_strict ;; # strict-seed: its name before 0.2
    vllm) _kr_mended && { ! _kr_is_rdma || _kr_vllm; } ;;
    *)
        echo "nccl_env.sh: NCCL_ENV is '$NCCL_ENV'; it may be vke or vllm, or not set." >&2
        return 2
        ;;
    esac || return
    [ "$_kr_format" != json ] || echo "{$_kr_json}"
}

# The shell's own state: a caller may have any options, and any IFS.
_kr_options=$- _kr_ifs=${IFS-unset}
set +efu
IFS=' 	
'
_kr_main "$@"
_kr_status=$?
if [ "$_kr_ifs" = unset ]; then unset IFS; else IFS=$_kr_ifs; fi
case $_kr_options in *f*) set -f ;; esac
case $_kr_options in *u*) set -u ;; esac
unset -f _kr_read _kr_list _kr_strict_gid _kr_strict_type _kr_strict_carrier _kr_strict_up \
    _kr_strict_more _kr_strict _kr_nothing _kr_read_own4 _kr_read_own6 _kr_read_granted _kr_mapped \
    _kr_is_own _kr_choose _kr_to_tenths _kr_add _kr_find _kr_number _kr_cover _kr_is_alone \
    _kr_tell_apart _kr_default_interface _kr_mended _kr_is_rdma _kr_give_ucx _kr_share \
    _kr_read_virtual _kr_is_broken _kr_read_nics _kr_choose_nic _kr_vllm _kr_give _kr_main
unset _kr_text _kr_line _kr_names _kr_path _kr_gid _kr_first _kr_version _kr_netdev _kr_number \
    _kr_found _kr_device _kr_port _kr_at _kr_index _kr_best _kr_hcas _kr_gid_index _kr_differ _kr_rate \
    _kr_own4 _kr_own6 _kr_last _kr_a _kr_b _kr_c _kr_granted _kr_address _kr_kind _kr_interface \
    _kr_digits _kr_rest _kr_chosen _kr_chosen_kind _kr_tenths _kr_bits _kr_low _kr_value _kr_range \
    _kr_root _kr_json _kr_format _kr_ib _kr_newline _kr_no_gid _kr_shared _kr_nics _kr_nearest \
    _kr_uses _kr_pairs _kr_gpu _kr_ifs _kr_virtual _kr_left
case $_kr_options in *e*) set -e ;; esac
unset _kr_options
# The status without a variable that would stay: 0, 1 or 2.
case $_kr_status in
0) unset _kr_status && true ;;
1) unset _kr_status && false ;;
*) unset _kr_status && (exit 2) ;;
esac
