"""Any tree: what may stand in the files that nccl_env.sh reads, by hypothesis."""

from hypothesis import strategies as st

from kube_rdma_testing.kernel.gid_trees import NO_GID, Entry, PortFiles, Tree, mapped

GIDS = st.sampled_from(
    [
        *(mapped(f"10.0.0.{n}") for n in (1, 2, 3)),
        *(NO_GID, "fe80:0000:0000:0000:0000:00ff:fe00:0001", "", "0000", "0000 x:1", "junk"),
        "fd00:0000:0000:0000:0000:0000:0000:0001",
    ]
)
TYPES = st.sampled_from(
    [*(["RoCE v2"] * 6), "RoCE V2", "IB/RoCE v1", None, "", "v2 x", "x", "IB\nRoCE v2"]
)
NETDEVS = st.sampled_from([*(["net1"] * 4), "net2", "net3", "gone", None, ""])
CARRIERS = st.sampled_from([*(["1"] * 6), "0", "", None, "2", "08", "00", "-1", "x", "1 1"])
RATES = st.sampled_from(
    [
        *(["100 Gb/sec (4X EDR)"] * 3),
        *("200 Gb/sec (4X HDR)", "2.5 Gb/sec (1X SDR)", "40 Gb/sec (4X QDR)"),
        *("0144 Gb/sec", "09", "", None, "?"),
    ]
)
INDEXES = st.integers(0, 300).map(str)
ENTRIES = st.builds(Entry, GIDS, TYPES, NETDEVS)
PORTS = st.builds(
    PortFiles, st.dictionaries(INDEXES, ENTRIES, max_size=4), RATES, st.just("Ethernet")
)
NAMES = st.sampled_from(["mlx5_0", "mlx5_1", "mlx5_10", "rxe@eth1", "a b", "erdma-3", "Z"])
TREES = st.builds(
    Tree,
    st.dictionaries(NAMES, st.dictionaries(st.sampled_from("12"), PORTS, max_size=2), max_size=4),
    st.fixed_dictionaries(
        {
            name: st.tuples(CARRIERS, st.booleans() | st.just(True))
            for name in ("net1", "net2", "net3")
        }
    ),
)
