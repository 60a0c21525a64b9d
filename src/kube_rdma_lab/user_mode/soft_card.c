// SPDX-License-Identifier: GPL-2.0-only
/*
 * PCIe network cards that exist in software only: plain ones, ones with virtual functions (SR-IOV),
 * and displays without a driver. Configuration space is a table in this file; all else (PCI core,
 * SR-IOV core, sysfs, rtnetlink) is the kernel's own.
 *
 * What there is stands on the kernel's command line, as user_mode_machine.py writes it:
 * soft_card.cards= and a word for each function, with commas between: KIND/SOCKET[/MAC[/WIRE]].
 * WIRE is the network device that a card and its virtual functions send through; cards without one
 * share a hub.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/etherdevice.h>
#include <linux/ethtool.h>
#include <linux/hex.h>
#include <linux/if_link.h>
#include <linux/module.h>
#include <linux/netdevice.h>
#include <linux/pci.h>
#include <linux/rtnetlink.h>
#include <linux/string.h>

#define VENDOR 0x1b36 /* QEMU's own, as for its root ports */
#define ROOT_PORT 0x000c
#define CARD 0x7e01
#define CARD_SRIOV 0x7e02
#define CARD_VF 0x7e03
#define GHOST 0x7e04
#define MOST_FUNCTIONS 16
#define MOST_VFS 7
#define VF_OFFSET 0x80
#define VF_STRIDE 2
#define CFG_SIZE 4096
#define PCIE_CAP 0x40
#define SRIOV_CAP 0x100
#define SPEED 1000
/* What may wait for a wire. A processor that this program's machine takes away for a moment leaves
 * the other one to fill the queue, and Soft-RoCE does not send again what it could not send. */
#define WIRE_FRAMES 16384

struct vf {
	u8 mac[ETH_ALEN];
	u16 vlan;
	u16 qos;
	u32 max_rate;
	bool spoof_check;
	bool trusted;
	u8 cfg[CFG_SIZE];
};

struct function {
	u16 device;
	u32 class;
	int socket;
	u8 mac[ETH_ALEN];
	char wire[IFNAMSIZ];
	unsigned int open; /* devices that use the wire; by RTNL */
	struct net_device *wire_dev; /* held while some do */
	u8 port[CFG_SIZE]; /* of the root port above */
	u8 cfg[CFG_SIZE];
	struct vf *vfs; /* MOST_VFS of them, or none */
};

struct card {
	struct net_device *dev;
	struct list_head list;
	struct function *function; /* a virtual one has its physical one's */
};

static char *cards = "";
module_param(cards, charp, 0444);
MODULE_PARM_DESC(cards, "functions: card|sriov|ghost/SOCKET[/MAC[/WIRE]],...");

static struct function functions[MOST_FUNCTIONS];
static int number_of_functions;

static const u8 root_bus[] = { 0x20, 0x40 };
static LIST_HEAD(hub);
static DEFINE_SPINLOCK(hub_lock);

/* ---- configuration space ---- */

static void put(u8 *cfg, int where, int size, u32 value)
{
	memcpy(cfg + where, &value, size); /* x86 is little-endian, as PCI is */
}

static u32 get(const u8 *cfg, int where, int size)
{
	u32 value = 0;

	memcpy(&value, cfg + where, size);
	return value;
}

static void fill(u8 *cfg, u16 vendor, u16 device, u32 class, u8 header, u16 type)
{
	put(cfg, PCI_VENDOR_ID, 2, vendor);
	put(cfg, PCI_DEVICE_ID, 2, device);
	put(cfg, PCI_STATUS, 2, PCI_STATUS_CAP_LIST);
	put(cfg, PCI_CLASS_REVISION, 4, class << 8);
	put(cfg, PCI_HEADER_TYPE, 1, header);
	put(cfg, PCI_CAPABILITY_LIST, 1, PCIE_CAP);
	put(cfg, PCIE_CAP, 2, PCI_CAP_ID_EXP);
	put(cfg, PCIE_CAP + PCI_EXP_FLAGS, 2, 2 | type << 4);
	if (header == PCI_HEADER_TYPE_BRIDGE)
		put(cfg, PCI_MEMORY_BASE, 4, 0x0000fff0); /* base above limit: no window */
}

static void fill_sriov(u8 *cfg)
{
	put(cfg, SRIOV_CAP, 4, PCI_EXT_CAP_ID_SRIOV | 1 << 16);
	put(cfg, SRIOV_CAP + PCI_SRIOV_INITIAL_VF, 2, MOST_VFS);
	put(cfg, SRIOV_CAP + PCI_SRIOV_TOTAL_VF, 2, MOST_VFS);
	put(cfg, SRIOV_CAP + PCI_SRIOV_VF_OFFSET, 2, VF_OFFSET);
	put(cfg, SRIOV_CAP + PCI_SRIOV_VF_STRIDE, 2, VF_STRIDE);
	put(cfg, SRIOV_CAP + PCI_SRIOV_VF_DID, 2, CARD_VF);
	put(cfg, SRIOV_CAP + PCI_SRIOV_SUP_PGSIZE, 4, 0x553);
	put(cfg, SRIOV_CAP + PCI_SRIOV_SYS_PGSIZE, 4, 1);
}

static u8 *find_cfg(int socket, u8 bus, unsigned int devfn)
{
	int slot = 0;

	for (int i = 0; i < number_of_functions; i++) {
		struct function *fn = &functions[i];

		if (fn->socket != socket)
			continue;
		if (bus == root_bus[socket] && devfn == PCI_DEVFN(slot, 0))
			return fn->port;
		slot++;
		if (bus == root_bus[socket] || bus != fn->port[PCI_SECONDARY_BUS])
			continue;
		if (devfn == 0)
			return fn->cfg;
		if (fn->vfs && devfn >= VF_OFFSET && !((devfn - VF_OFFSET) % VF_STRIDE)) {
			int vf = (devfn - VF_OFFSET) / VF_STRIDE;
			bool on = get(fn->cfg, SRIOV_CAP + PCI_SRIOV_CTRL, 2) & PCI_SRIOV_CTRL_VFE;

			if (on && vf < get(fn->cfg, SRIOV_CAP + PCI_SRIOV_NUM_VF, 2))
				return fn->vfs[vf].cfg;
		}
	}
	return NULL;
}

static int cfg_read(struct pci_bus *bus, unsigned int devfn, int where, int size, u32 *value)
{
	u8 *cfg = find_cfg((long)bus->sysdata, bus->number, devfn);

	*value = cfg ? get(cfg, where, size) : 0xffffffff;
	return cfg ? PCIBIOS_SUCCESSFUL : PCIBIOS_DEVICE_NOT_FOUND;
}

/* What can be written; all else is read-only, base addresses too: no function has memory. */
static bool writable(const u8 *cfg, int byte)
{
	bool bridge = get(cfg, PCI_HEADER_TYPE, 1) == PCI_HEADER_TYPE_BRIDGE;

	switch (byte) {
	case PCI_COMMAND ... PCI_COMMAND + 1:
	case PCIE_CAP + PCI_EXP_DEVCTL ... PCIE_CAP + PCI_EXP_DEVCTL + 1:
	case PCI_INTERRUPT_LINE:
		return true;
	case PCI_PRIMARY_BUS ... PCI_SUBORDINATE_BUS:
	case PCI_BRIDGE_CONTROL ... PCI_BRIDGE_CONTROL + 1:
		return bridge;
	case SRIOV_CAP + PCI_SRIOV_CTRL ... SRIOV_CAP + PCI_SRIOV_CTRL + 1:
	case SRIOV_CAP + PCI_SRIOV_NUM_VF ... SRIOV_CAP + PCI_SRIOV_NUM_VF + 1:
	case SRIOV_CAP + PCI_SRIOV_SYS_PGSIZE ... SRIOV_CAP + PCI_SRIOV_SYS_PGSIZE + 3:
		return get(cfg, SRIOV_CAP, 2) == PCI_EXT_CAP_ID_SRIOV;
	}
	return false;
}

static int cfg_write(struct pci_bus *bus, unsigned int devfn, int where, int size, u32 value)
{
	u8 *cfg = find_cfg((long)bus->sysdata, bus->number, devfn);

	if (!cfg)
		return PCIBIOS_DEVICE_NOT_FOUND;
	for (int i = 0; i < size; i++)
		if (writable(cfg, where + i))
			cfg[where + i] = value >> (8 * i);
	return PCIBIOS_SUCCESSFUL;
}

static struct pci_ops ops = { .read = cfg_read, .write = cfg_write };

static struct resource buses[] = {
	{ .name = "socket 0", .start = 0x20, .end = 0x3f, .flags = IORESOURCE_BUS },
	{ .name = "socket 1", .start = 0x40, .end = 0x5f, .flags = IORESOURCE_BUS },
};

static struct function *function_of(struct pci_dev *pdev)
{
	for (int i = 0; i < number_of_functions; i++)
		if (find_cfg((long)pdev->bus->sysdata, pdev->bus->number, pdev->devfn) ==
		    functions[i].cfg)
			return &functions[i];
	return NULL;
}

/* ---- the network device ---- */

/* Give a frame to all cards of a function's hub or wire but the one that sent it. */
static void deliver(struct sk_buff *skb, struct function *fn, struct net_device *sender)
{
	struct card *other;

	rcu_read_lock();
	list_for_each_entry_rcu(other, &hub, list) {
		struct sk_buff *copy;

		if (other->dev == sender || !netif_running(other->dev) ||
		    strcmp(other->function->wire, fn->wire))
			continue;
		copy = skb_clone(skb, GFP_ATOMIC);
		if (copy) {
			unsigned int length = copy->len;

			if (dev_forward_skb(other->dev, copy) == NET_RX_SUCCESS)
				dev_sw_netstats_rx_add(other->dev, length);
		}
	}
	rcu_read_unlock();
}

static netdev_tx_t card_xmit(struct sk_buff *skb, struct net_device *dev)
{
	struct card *card = netdev_priv(dev);
	struct net_device *wire = READ_ONCE(card->function->wire_dev);

	dev_sw_netstats_tx_add(dev, 1, skb->len);
	deliver(skb, card->function, dev);
	if (wire) {
		skb->dev = wire;
		dev_queue_xmit(skb);
	} else {
		consume_skb(skb);
	}
	return NETDEV_TX_OK;
}

static rx_handler_result_t wire_receive(struct sk_buff **pskb)
{
	struct sk_buff *skb = skb_share_check(*pskb, GFP_ATOMIC);

	if (skb) {
		skb_push(skb, ETH_HLEN);
		deliver(skb, rcu_dereference(skb->dev->rx_handler_data), NULL);
		consume_skb(skb);
	}
	return RX_HANDLER_CONSUMED;
}

/* The first device of a function that is up takes its wire, the last one leaves it. */
static int take_wire(struct function *fn)
{
	struct net_device *wire;
	int err;

	if (!*fn->wire || fn->open++)
		return 0;
	wire = dev_get_by_name(&init_net, fn->wire);
	if (wire) {
		wire->priv_flags |= IFF_NO_ADDRCONF; /* it is a cable, not an interface */
		wire->tx_queue_len = WIRE_FRAMES;
	}
	err = wire ? dev_open(wire, NULL) : -ENODEV;
	err = err ?: netdev_rx_handler_register(wire, wire_receive, fn);
	if (err) {
		dev_put(wire);
		fn->open--;
		return err;
	}
	WRITE_ONCE(fn->wire_dev, wire);
	return 0;
}

static void leave_wire(struct function *fn)
{
	struct net_device *wire = fn->wire_dev;

	if (!wire || --fn->open)
		return;
	WRITE_ONCE(fn->wire_dev, NULL);
	netdev_rx_handler_unregister(wire);
	synchronize_net();
	dev_put(wire);
}

static int card_open(struct net_device *dev)
{
	struct card *card = netdev_priv(dev);
	int err = take_wire(card->function);

	if (err)
		return err;
	netif_carrier_on(dev);
	netif_start_queue(dev);
	return 0;
}

static int card_stop(struct net_device *dev)
{
	struct card *card = netdev_priv(dev);

	netif_stop_queue(dev);
	netif_carrier_off(dev);
	leave_wire(card->function);
	return 0;
}

static struct vf *vf_of(struct net_device *dev, int number)
{
	struct card *card = netdev_priv(dev);

	return number < pci_num_vf(to_pci_dev(dev->dev.parent)) ? &card->function->vfs[number] :
								  NULL;
}

static int set_vf_mac(struct net_device *dev, int number, u8 *mac)
{
	struct vf *vf = vf_of(dev, number);

	if (!vf || is_multicast_ether_addr(mac))
		return -EINVAL;
	ether_addr_copy(vf->mac, mac); /* reaches the function when its driver is bound again */
	return 0;
}

static int set_vf_vlan(struct net_device *dev, int number, u16 vlan, u8 qos, __be16 protocol)
{
	struct vf *vf = vf_of(dev, number);

	if (!vf || vlan > 4095 || qos > 7)
		return -EINVAL;
	if (protocol != htons(ETH_P_8021Q))
		return -EPROTONOSUPPORT;
	vf->vlan = vlan;
	vf->qos = qos;
	return 0;
}

static int set_vf_rate(struct net_device *dev, int number, int least, int most)
{
	struct vf *vf = vf_of(dev, number);

	if (!vf || least || most < 0 || most > SPEED || !netif_carrier_ok(dev))
		return -EINVAL;
	vf->max_rate = most;
	return 0;
}

static int set_vf_spoofchk(struct net_device *dev, int number, bool on)
{
	struct vf *vf = vf_of(dev, number);

	if (!vf)
		return -EINVAL;
	vf->spoof_check = on;
	return 0;
}

static int set_vf_trust(struct net_device *dev, int number, bool on)
{
	struct vf *vf = vf_of(dev, number);

	if (!vf)
		return -EINVAL;
	vf->trusted = on;
	return 0;
}

static int get_vf_config(struct net_device *dev, int number, struct ifla_vf_info *told)
{
	struct vf *vf = vf_of(dev, number);

	if (!vf)
		return -EINVAL;
	told->vf = number;
	ether_addr_copy(told->mac, vf->mac);
	told->vlan = vf->vlan;
	told->qos = vf->qos;
	told->vlan_proto = htons(ETH_P_8021Q);
	told->max_tx_rate = vf->max_rate;
	told->spoofchk = vf->spoof_check;
	told->trusted = vf->trusted;
	return 0;
}

#define COMMON                                          \
	.ndo_open = card_open, .ndo_stop = card_stop,   \
	.ndo_start_xmit = card_xmit,                    \
	.ndo_set_mac_address = eth_mac_addr,            \
	.ndo_validate_addr = eth_validate_addr

static const struct net_device_ops vf_ops = { COMMON };
static const struct net_device_ops pf_ops = {
	COMMON,
	.ndo_set_vf_mac = set_vf_mac,
	.ndo_set_vf_vlan = set_vf_vlan,
	.ndo_set_vf_rate = set_vf_rate,
	.ndo_set_vf_spoofchk = set_vf_spoofchk,
	.ndo_set_vf_trust = set_vf_trust,
	.ndo_get_vf_config = get_vf_config,
};

static int get_link_ksettings(struct net_device *dev, struct ethtool_link_ksettings *told)
{
	told->base.speed = netif_carrier_ok(dev) ? SPEED : SPEED_UNKNOWN;
	told->base.duplex = DUPLEX_FULL;
	told->base.port = PORT_NONE;
	return 0;
}

static const struct ethtool_ops card_ethtool_ops = {
	.get_link = ethtool_op_get_link,
	.get_link_ksettings = get_link_ksettings,
};

static void first_mac(struct net_device *dev, struct pci_dev *pdev)
{
	struct card *card = netdev_priv(dev);

	card->function = function_of(pci_physfn(pdev));
	if (pdev->is_virtfn) {
		struct vf *vf = &card->function->vfs[(pdev->devfn - VF_OFFSET) / VF_STRIDE];

		if (is_zero_ether_addr(vf->mac))
			eth_hw_addr_random(dev);
		else
			eth_hw_addr_set(dev, vf->mac);
	} else {
		eth_hw_addr_set(dev, card->function->mac);
	}
}

static int card_probe(struct pci_dev *pdev, const struct pci_device_id *id)
{
	struct net_device *dev = alloc_etherdev(sizeof(struct card));
	struct card *card;
	int err;

	if (!dev)
		return -ENOMEM;
	card = netdev_priv(dev);
	card->dev = dev;
	SET_NETDEV_DEV(dev, &pdev->dev);
	first_mac(dev, pdev);
	dev->netdev_ops = pdev->is_virtfn ? &vf_ops : &pf_ops;
	dev->ethtool_ops = &card_ethtool_ops;
	dev->max_mtu = 9216;
	dev->lltx = true;
	dev->pcpu_stat_type = NETDEV_PCPU_STAT_TSTATS;
	dev->priv_flags |= IFF_LIVE_ADDR_CHANGE | IFF_NO_QUEUE; /* the wire has one */
	dev->features = dev->hw_features = NETIF_F_SG | NETIF_F_HW_CSUM | NETIF_F_HIGHDMA;
	netif_carrier_off(dev);
	err = register_netdev(dev);
	if (err) {
		free_netdev(dev);
		return err;
	}
	pci_set_drvdata(pdev, dev);
	spin_lock(&hub_lock);
	list_add_tail_rcu(&card->list, &hub);
	spin_unlock(&hub_lock);
	return 0;
}

static void card_remove(struct pci_dev *pdev)
{
	struct net_device *dev = pci_get_drvdata(pdev);
	struct card *card = netdev_priv(dev);

	if (!pdev->is_virtfn)
		pci_disable_sriov(pdev);
	spin_lock(&hub_lock);
	list_del_rcu(&card->list);
	spin_unlock(&hub_lock);
	synchronize_net();
	unregister_netdev(dev);
	free_netdev(dev);
}

static int card_sriov(struct pci_dev *pdev, int number)
{
	struct function *fn = function_of(pdev);
	int err;

	if (!number) {
		pci_disable_sriov(pdev);
		return 0;
	}
	for (int i = 0; i < MOST_VFS; i++) {
		struct vf *vf = &fn->vfs[i];

		memset(vf, 0, sizeof(*vf));
		vf->spoof_check = true;
		fill(vf->cfg, 0xffff, 0xffff, 0x020000, PCI_HEADER_TYPE_NORMAL, PCI_EXP_TYPE_ENDPOINT);
	}
	err = pci_enable_sriov(pdev, number);
	return err ?: number;
}

static const struct pci_device_id card_ids[] = {
	{ PCI_DEVICE(VENDOR, CARD) }, { PCI_DEVICE(VENDOR, CARD_SRIOV) }, {}
};
static const struct pci_device_id vf_ids[] = { { PCI_DEVICE(VENDOR, CARD_VF) }, {} };

static struct pci_driver card_driver = {
	.name = "soft_card",
	.id_table = card_ids,
	.probe = card_probe,
	.remove = card_remove,
	.sriov_configure = card_sriov,
};
static struct pci_driver vf_driver = {
	.name = "soft_cardvf", .id_table = vf_ids, .probe = card_probe, .remove = card_remove
};

static int scan(int socket)
{
	struct pci_host_bridge *bridge = pci_alloc_host_bridge(0);
	int err;

	if (!bridge)
		return -ENOMEM;
	pci_add_resource(&bridge->windows, &buses[socket]);
	bridge->ops = &ops;
	bridge->sysdata = (void *)(long)socket;
	bridge->busnr = root_bus[socket];
	err = pci_host_probe(bridge);
	if (err)
		pci_free_host_bridge(bridge);
	return err;
}

/* Make one function of its word on the command line. */
static int __init add(char *word)
{
	char *kind = strsep(&word, "/"), *socket = strsep(&word, "/"), *mac = strsep(&word, "/");
	struct function *fn = &functions[number_of_functions];

	if (number_of_functions == MOST_FUNCTIONS || !socket || kstrtoint(socket, 10, &fn->socket) ||
	    fn->socket < 0 || fn->socket >= ARRAY_SIZE(root_bus) || (mac && !mac_pton(mac, fn->mac)) ||
	    (word && strscpy(fn->wire, word) < 0))
		return -EINVAL;
	fn->device = !strcmp(kind, "ghost") ? GHOST : !strcmp(kind, "sriov") ? CARD_SRIOV : CARD;
	fn->class = fn->device == GHOST ? 0x038000 : 0x020000;
	fill(fn->port, VENDOR, ROOT_PORT, 0x060400, PCI_HEADER_TYPE_BRIDGE, PCI_EXP_TYPE_ROOT_PORT);
	fill(fn->cfg, VENDOR, fn->device, fn->class, PCI_HEADER_TYPE_NORMAL, PCI_EXP_TYPE_ENDPOINT);
	if (fn->device == CARD_SRIOV) {
		fill_sriov(fn->cfg);
		fn->vfs = kcalloc(MOST_VFS, sizeof(*fn->vfs), GFP_KERNEL);
		if (!fn->vfs)
			return -ENOMEM;
	}
	number_of_functions++;
	return 0;
}

static int __init soft_card_init(void)
{
	int err = pci_register_driver(&card_driver) ?: pci_register_driver(&vf_driver);
	char *left = kstrdup(cards, GFP_KERNEL), *word, *begin = left;

	while (!err && (word = strsep(&left, ",")) && *word) {
		err = add(word);
		if (err)
			pr_err("soft_card.cards: function %d is not KIND/SOCKET[/MAC[/WIRE]]\n",
			       number_of_functions + 1);
	}
	kfree(begin);
	for (int socket = 0; !err && socket < ARRAY_SIZE(root_bus); socket++)
		err = scan(socket);
	return err;
}
late_initcall(soft_card_init);

MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("PCIe network cards that exist in software only");
