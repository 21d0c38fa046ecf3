/* DPDK's mlx5 driver as a contender: the same rounds as `connectx` plays, on the same two NICs that
 * move when they are told to.
 *
 *     softhca run --manual --devices 2 --netns -- dpdk rx|rx-compressed|tx ROUNDS
 *
 * What counts happens in the functions whose names begin with `measured`. Flow rules go by verbs
 * (dv_flow_en=0), because the NICs have no DevX.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rte_eal.h>
#include <rte_ethdev.h>
#include <rte_mbuf.h>

enum { BURST = 32, ROUND = 256, RING = 2 * ROUND, FRAME_LEN = 64 };

static struct rte_mempool *pool;
static size_t (*step)(size_t budget);

static void demand(int is_so, const char *what)
{
	if (!is_so) {
		fprintf(stderr, "dpdk: %s\n", what);
		exit(1);
	}
}

static __attribute__((noinline)) uint16_t measured_reception(uint16_t port, struct rte_mbuf **burst)
{
	return rte_eth_rx_burst(port, 0, burst, BURST);
}

static __attribute__((noinline)) uint16_t measured_sending(uint16_t port, struct rte_mbuf **burst)
{
	return rte_eth_tx_burst(port, 0, burst, BURST);
}

static void open_port(uint16_t port)
{
	/* All frames are of one pool and nobody else holds them: who says so sends for less. */
	struct rte_eth_conf conf = { .txmode.offloads = RTE_ETH_TX_OFFLOAD_MBUF_FAST_FREE };

	demand(rte_eth_dev_configure(port, 1, 1, &conf) == 0, "a port cannot be configured");
	demand(rte_eth_rx_queue_setup(port, 0, RING, 0, NULL, pool) == 0, "no receive queue");
	demand(rte_eth_tx_queue_setup(port, 0, RING, 0, NULL) == 0, "no send queue");
	demand(rte_eth_dev_start(port) == 0, "a port does not start");
	demand(rte_eth_promiscuous_enable(port) == 0, "a port does not take all frames");
}

/* Port 0 sends a round, port 1 receives it; `of_*` are measured or not. */
static void play(uint16_t (*of_sending)(uint16_t, struct rte_mbuf **), uint16_t (*of_reception)(uint16_t, struct rte_mbuf **))
{
	struct rte_mbuf *burst[BURST];

	for (int at = 0; at < ROUND; at += BURST) {
		demand(rte_pktmbuf_alloc_bulk(pool, burst, BURST) == 0, "the pool is empty");
		for (int idx = 0; idx < BURST; idx++)
			memset(rte_pktmbuf_append(burst[idx], FRAME_LEN), 0x5a, FRAME_LEN);
		demand(of_sending(0, burst) == BURST, "the ring has no room for a burst");
	}
	while (step(RING) > 0)
		;
	for (int at = 0; at < ROUND; at += BURST) {
		demand(of_reception(1, burst) == BURST, "the wire lost a frame");
		rte_pktmbuf_free_bulk(burst, BURST);
	}
}

static uint16_t reception(uint16_t port, struct rte_mbuf **burst)
{
	return rte_eth_rx_burst(port, 0, burst, BURST);
}

static uint16_t sending(uint16_t port, struct rte_mbuf **burst)
{
	return rte_eth_tx_burst(port, 0, burst, BURST);
}

/* "-a ADDRESS,…" for the NIC that sysfs shows as `name`. */
static char *allow(const char *name, const char *how)
{
	static char words[2][PATH_MAX];
	static int count;
	char link[PATH_MAX], *word = words[count++];

	snprintf(link, sizeof(link), "/sys/class/infiniband/%s/device", name);
	char *path = realpath(link, NULL);
	demand(path != NULL, "there is no such device");
	snprintf(word, PATH_MAX, "%s,dv_flow_en=0,%s", strrchr(path, '/') + 1, how);
	free(path);
	return word;
}

int main(int argc, char **argv)
{
	demand(argc == 3, "say rx or tx, and a number of rounds");
	const char *how = strcmp(argv[1], "rx-compressed") == 0 ? "rxq_cqe_comp_en=1" : "rxq_cqe_comp_en=0";
	char *eal[] = { argv[0], "--no-huge", "-m", "64", "--iova-mode=va", "--no-shconf", "--no-telemetry", "--log-level=error",
			"-a", allow("mlx5_0", how), "-a", allow("mlx5_1", how) };
	demand(rte_eal_init(RTE_DIM(eal), eal) >= 0, "DPDK does not start");
	*(void **)&step = dlsym(RTLD_DEFAULT, "softhca_step");
	demand(step != NULL, "no software ConnectX is here");
	pool = rte_pktmbuf_pool_create("pool", 4 * RING, 0, 0, RTE_MBUF_DEFAULT_BUF_SIZE, SOCKET_ID_ANY);
	demand(pool != NULL, "no memory for the pool");
	demand(rte_eth_dev_count_avail() == 2, "there are not two ports");
	open_port(0);
	open_port(1);
	int rounds = atoi(argv[2]);
	for (int round = 0; round < rounds; round++)
		strcmp(argv[1], "tx") == 0 ? play(measured_sending, reception) : play(sending, measured_reception);
	printf("packets %d\n", rounds * ROUND);
	return 0;
}
