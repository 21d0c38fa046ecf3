/*
 * A program for ordinary verbs: it sends raw packets on one port and receives them on another that
 * a cable joins to it, and says of each fact whether it holds. It knows nothing of who made the
 * NIC, and runs on two ports of a real one as well.
 *
 *   verbs SENDER RECEIVER        names of RDMA devices, port 1 of each
 *
 * Prints `ok FACT` for each, or `FAILED FACT: what was seen instead` and ends with exit code 1:
 * what a fact that failed leaves behind would be in the way of the others.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
	SLOTS = 64,	/* buffers of a side */
	SLOT_LEN = 2048,
	AREA_LEN = 256 * 1024,
	HEADERS_LEN = 14 + 20 + 8,
	PATIENCE_MS = 5000, /* after which something that has not come will not come */
	QUIET_MS = 200,	    /* after which nothing more comes */
};

/* One end of the cable. */
struct side {
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_comp_channel *channel;
	struct ibv_cq *send_cq, *receive_cq;
	struct ibv_qp *qp;
	struct ibv_mr *mr;
	unsigned char *area;
};

static struct side sender, receiver;
static const char *fact;
static jmp_buf failed;

static void fail(const char *format, ...)
{
	va_list arguments;
	va_start(arguments, format);
	printf("FAILED %s: ", fact);
	vprintf(format, arguments);
	printf("\n");
	va_end(arguments);
	longjmp(failed, 1);
}

static void must(bool holds, const char *what)
{
	if (!holds)
		fail("%s: %s", what, strerror(errno));
}

/* Verbs that return the error number. */
static void done(int error, const char *what)
{
	if (error)
		fail("%s: %s", what, strerror(error < 0 ? -error : error));
}

static long now_ms(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* ---- set-up ------------------------------------------------------------------------------------------------------ */

static struct ibv_context *open_device(const char *name)
{
	int count = 0;
	struct ibv_device **devices = ibv_get_device_list(&count);
	struct ibv_context *context = NULL;
	for (int idx = 0; idx < count; idx++)
		if (!strcmp(ibv_get_device_name(devices[idx]), name))
			context = ibv_open_device(devices[idx]);
	ibv_free_device_list(devices);
	if (!context) {
		fprintf(stderr, "verbs: cannot open %s\n", name);
		exit(99);
	}
	return context;
}

static struct ibv_qp *make_qp(struct side *side, int depth, int tso_header, int signal_all)
{
	struct ibv_qp_init_attr_ex wanted = {
		.send_cq = side->send_cq,
		.recv_cq = side->receive_cq,
		.cap = { .max_send_wr = depth, .max_recv_wr = depth, .max_send_sge = 3, .max_recv_sge = 2, .max_inline_data = 256 },
		.qp_type = IBV_QPT_RAW_PACKET,
		.sq_sig_all = signal_all,
		.comp_mask = IBV_QP_INIT_ATTR_PD | (tso_header ? IBV_QP_INIT_ATTR_MAX_TSO_HEADER : 0),
		.pd = side->pd,
		.max_tso_header = tso_header,
	};
	struct ibv_qp *qp = ibv_create_qp_ex(side->context, &wanted);
	must(qp, "ibv_create_qp_ex");
	return qp;
}

static void to_state(struct ibv_qp *qp, enum ibv_qp_state state)
{
	struct ibv_qp_attr wanted = { .qp_state = state, .port_num = 1 };
	done(ibv_modify_qp(qp, &wanted, IBV_QP_STATE | (state == IBV_QPS_INIT ? IBV_QP_PORT : 0)), "ibv_modify_qp");
}

static void to_rts(struct ibv_qp *qp)
{
	to_state(qp, IBV_QPS_INIT);
	to_state(qp, IBV_QPS_RTR);
	to_state(qp, IBV_QPS_RTS);
}

static void open_side(struct side *side, const char *name)
{
	side->context = open_device(name);
	side->area = aligned_alloc(4096, AREA_LEN);
	side->pd = ibv_alloc_pd(side->context);
	side->channel = ibv_create_comp_channel(side->context);
	if (!side->pd || !side->channel || fcntl(side->channel->fd, F_SETFL, O_NONBLOCK)) {
		fprintf(stderr, "verbs: cannot set %s up: %s\n", name, strerror(errno));
		exit(99);
	}
	side->mr = ibv_reg_mr(side->pd, side->area, AREA_LEN, IBV_ACCESS_LOCAL_WRITE);
	if (!side->mr) {
		fprintf(stderr, "verbs: cannot register memory on %s: %s\n", name, strerror(errno));
		exit(99);
	}
}

/* Queues of `depth` for the next fact. */
static void begin(int depth, int tso_header, int signal_all)
{
	for (int idx = 0; idx < 2; idx++) {
		struct side *side = idx ? &receiver : &sender;
		memset(side->area, 0, AREA_LEN);
		side->send_cq = ibv_create_cq(side->context, depth, NULL, NULL, 0);
		side->receive_cq = ibv_create_cq(side->context, depth, (void *)fact, side->channel, 0);
		must(side->send_cq && side->receive_cq, "ibv_create_cq");
		side->qp = make_qp(side, depth, idx ? 0 : tso_header, signal_all);
		to_rts(side->qp);
	}
}

static void end(void)
{
	for (int idx = 0; idx < 2; idx++) {
		struct side *side = idx ? &receiver : &sender;
		done(ibv_destroy_qp(side->qp), "ibv_destroy_qp");
		done(ibv_destroy_cq(side->send_cq), "ibv_destroy_cq");
		done(ibv_destroy_cq(side->receive_cq), "ibv_destroy_cq");
	}
}

/* ---- frames and rules -------------------------------------------------------------------------------------------- */

static const unsigned char station[6] = { 2, 0, 0, 0, 0, 0x22 };

struct flow_rule {
	struct ibv_flow_attr attr;
	struct ibv_flow_spec_eth ethernet;
	struct ibv_flow_spec_ipv4 ip;
	struct ibv_flow_spec_tcp_udp udp;
};

/* UDP to `port`, 0 for any IPv4. */
static struct ibv_flow *steer(struct ibv_qp *qp, const unsigned char mac[6], int port)
{
	struct flow_rule rule = {
		.attr = { .type = IBV_FLOW_ATTR_NORMAL, .size = sizeof rule, .priority = 1, .num_of_specs = port ? 3 : 1, .port = 1 },
		.ethernet = { .type = IBV_FLOW_SPEC_ETH, .size = sizeof rule.ethernet },
		.ip = { .type = IBV_FLOW_SPEC_IPV4, .size = sizeof rule.ip },
		.udp = { .type = IBV_FLOW_SPEC_UDP, .size = sizeof rule.udp,
			 .val = { .dst_port = htons(port) }, .mask = { .dst_port = 0xffff } },
	};
	memcpy(rule.ethernet.val.dst_mac, mac, 6);
	memset(rule.ethernet.mask.dst_mac, 0xff, 6);
	struct ibv_flow *flow = ibv_create_flow(qp, &rule.attr);
	must(flow, "ibv_create_flow");
	return flow;
}

static unsigned sum(const unsigned char *bytes, int len, unsigned seed)
{
	for (int idx = 0; idx < len; idx++)
		seed += idx % 2 ? bytes[idx] : bytes[idx] << 8;
	while (seed >> 16)
		seed = (seed & 0xffff) + (seed >> 16);
	return seed;
}

/* The sum of an L4 packet with its pseudo header: 0xffff where the checksum in it is right. */
static unsigned l4_sum(const unsigned char *ip)
{
	int len = ntohs(*(unsigned short *)(ip + 2)) - 20;
	return sum(ip + 20, len, sum(ip + 12, 8, ip[9] + len));
}

/* A UDP frame of `len` bytes to `mac` and `port`, without checksums. */
static void udp_frame(unsigned char *frame, int len, const unsigned char mac[6], int source_port, int port)
{
	static const unsigned char headers[HEADERS_LEN] = {
		0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0x11, 8, 0, 0x45, 0, 0, 0, 0, 1, 0x40, 0, 64, 17, 0, 0,
		10, 0, 0, 1, 10, 0, 0, 2,
	};
	memcpy(frame, headers, HEADERS_LEN);
	memcpy(frame, mac, 6);
	*(unsigned short *)(frame + 16) = htons(len - 14);
	*(unsigned short *)(frame + 34) = htons(source_port);
	*(unsigned short *)(frame + 36) = htons(port);
	*(unsigned short *)(frame + 38) = htons(len - 34);
	for (int idx = HEADERS_LEN; idx < len; idx++)
		frame[idx] = idx * 7 + len;
}

/* ---- posting and polling ----------------------------------------------------------------------------------------- */

static void post_receive(struct ibv_qp *qp, int slot, int len)
{
	struct ibv_sge sge = { (uintptr_t)receiver.area + slot * SLOT_LEN, len, receiver.mr->lkey };
	struct ibv_recv_wr *bad, request = { .wr_id = slot, .sg_list = &sge, .num_sge = 1 };
	done(ibv_post_recv(qp, &request, &bad), "ibv_post_recv");
}

static void post_send(unsigned char *frame, int len, int id, unsigned flags)
{
	struct ibv_sge sge = { (uintptr_t)frame, len, sender.mr->lkey };
	struct ibv_send_wr *bad, request = { .wr_id = id, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = flags };
	done(ibv_post_send(sender.qp, &request, &bad), "ibv_post_send");
}

static bool poll_for(struct ibv_cq *cq, struct ibv_wc *completion, int patience_ms)
{
	long end = now_ms() + patience_ms;
	do {
		int count = ibv_poll_cq(cq, 1, completion);
		if (count < 0)
			fail("ibv_poll_cq said %d", count);
		if (count)
			return true;
		/* One core may have to serve the NIC as well. */
		nanosleep(&(struct timespec){ .tv_nsec = 20000 }, NULL);
	} while (now_ms() < end);
	return false;
}

static struct ibv_wc expect(struct ibv_cq *cq, enum ibv_wc_status status, const char *what)
{
	struct ibv_wc completion;
	if (!poll_for(cq, &completion, PATIENCE_MS))
		fail("no completion of %s", what);
	if (completion.status != status)
		fail("%s completed with '%s', not '%s'", what, ibv_wc_status_str(completion.status), ibv_wc_status_str(status));
	return completion;
}

static void expect_nothing(struct ibv_cq *cq, const char *what)
{
	struct ibv_wc completion;
	if (poll_for(cq, &completion, QUIET_MS))
		fail("%s", what);
}

static unsigned char *slot(int idx)
{
	return receiver.area + idx * SLOT_LEN;
}

/* ---- the facts --------------------------------------------------------------------------------------------------- */

static void every_length_arrives_unchanged(void)
{
	begin(16, 0, 1);
	struct ibv_flow *flow = steer(receiver.qp, station, 0);
	for (int len = 60; len <= 1514; len++) {
		udp_frame(sender.area, len, station, 1, 2);
		post_receive(receiver.qp, len % 8, SLOT_LEN);
		post_send(sender.area, len, len, 0);
		struct ibv_wc received = expect(receiver.receive_cq, IBV_WC_SUCCESS, "a receive");
		if ((int)received.byte_len != len || (int)received.wr_id != len % 8)
			fail("%d bytes arrived as %u in slot %lu", len, received.byte_len, (unsigned long)received.wr_id);
		if (memcmp(sender.area, slot(len % 8), len))
			fail("%d bytes arrived changed", len);
		if ((int)expect(sender.send_cq, IBV_WC_SUCCESS, "a send").wr_id != len)
			fail("another send completed than the one of %d bytes", len);
	}
	done(ibv_destroy_flow(flow), "ibv_destroy_flow");
	end();
}

static void small_rings_wrap_many_times(void)
{
	begin(8, 0, 0);
	struct ibv_flow *flow = steer(receiver.qp, station, 0);
	for (int round = 0; round < 1000; round++) {
		for (int idx = 0; idx < 7; idx++)
			post_receive(receiver.qp, idx, SLOT_LEN);
		for (int idx = 0; idx < 7; idx++) {
			unsigned char *frame = sender.area + idx * SLOT_LEN;
			udp_frame(frame, 60 + (round + idx) % 200, station, round, idx);
			post_send(frame, 60 + (round + idx) % 200, idx, idx == 6 ? IBV_SEND_SIGNALED : 0);
		}
		for (int idx = 0; idx < 7; idx++) {
			struct ibv_wc received = expect(receiver.receive_cq, IBV_WC_SUCCESS, "a receive");
			if ((int)received.wr_id != idx || memcmp(slot(idx), sender.area + idx * SLOT_LEN, received.byte_len))
				fail("round %d: frame %d arrived out of order or changed", round, idx);
		}
		if (expect(sender.send_cq, IBV_WC_SUCCESS, "the signaled send").wr_id != 6)
			fail("an unsignaled send completed");
	}
	expect_nothing(sender.send_cq, "more sends completed than asked");
	done(ibv_destroy_flow(flow), "ibv_destroy_flow");
	end();
}

static void pieces_are_gathered_and_scattered(void)
{
	begin(8, 0, 1);
	struct ibv_flow *flow = steer(receiver.qp, station, 0);
	unsigned char whole[400];
	udp_frame(whole, 400, station, 1, 2);
	int cut[4] = { 0, 42, 43, 400 };
	struct ibv_sge pieces[3], places[2];
	for (int idx = 0; idx < 3; idx++) {
		unsigned char *place = sender.area + idx * SLOT_LEN + idx * 3;
		memcpy(place, whole + cut[idx], cut[idx + 1] - cut[idx]);
		pieces[idx] = (struct ibv_sge){ (uintptr_t)place, cut[idx + 1] - cut[idx], sender.mr->lkey };
	}
	places[0] = (struct ibv_sge){ (uintptr_t)slot(0), 100, receiver.mr->lkey };
	places[1] = (struct ibv_sge){ (uintptr_t)slot(1), 300, receiver.mr->lkey };
	struct ibv_recv_wr *bad_receive, receive = { .sg_list = places, .num_sge = 2 };
	struct ibv_send_wr *bad_send, send = { .sg_list = pieces, .num_sge = 3, .opcode = IBV_WR_SEND };
	done(ibv_post_recv(receiver.qp, &receive, &bad_receive), "ibv_post_recv");
	done(ibv_post_send(sender.qp, &send, &bad_send), "ibv_post_send");
	if (expect(receiver.receive_cq, IBV_WC_SUCCESS, "a receive").byte_len != 400)
		fail("not all came");
	if (memcmp(slot(0), whole, 100) || memcmp(slot(1), whole + 100, 300))
		fail("the pieces came changed");
	done(ibv_destroy_flow(flow), "ibv_destroy_flow");
	end();
}

static void inline_data_needs_no_registered_memory(void)
{
	begin(16, 0, 1);
	struct ibv_flow *flow = steer(receiver.qp, station, 0);
	for (int len = 60; len <= 256; len++) {
		unsigned char frame[256];
		udp_frame(frame, len, station, 3, 4);
		post_receive(receiver.qp, 0, SLOT_LEN);
		struct ibv_sge sge = { (uintptr_t)frame, len, 0 };
		struct ibv_send_wr *bad, request = { .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_INLINE };
		done(ibv_post_send(sender.qp, &request, &bad), "ibv_post_send");
		memset(frame, 0xee, sizeof frame); /* the bytes are the NIC's already */
		struct ibv_wc received = expect(receiver.receive_cq, IBV_WC_SUCCESS, "a receive");
		udp_frame(frame, len, station, 3, 4);
		if ((int)received.byte_len != len || memcmp(frame, slot(0), len))
			fail("%d inline bytes arrived as %u or changed", len, received.byte_len);
		expect(sender.send_cq, IBV_WC_SUCCESS, "an inline send");
	}
	done(ibv_destroy_flow(flow), "ibv_destroy_flow");
	end();
}

static void checksums_are_filled_in_and_judged(void)
{
	begin(16, 0, 1);
	struct ibv_flow *flow = steer(receiver.qp, station, 0);
	for (int wanted = 0; wanted < 2; wanted++) {
		udp_frame(sender.area, 101, station, 5, 6);
		sender.area[40] = sender.area[24] = 0xbb; /* wrong, unless the NIC fills them in */
		post_receive(receiver.qp, 0, SLOT_LEN);
		post_send(sender.area, 101, 0, wanted ? IBV_SEND_IP_CSUM : 0);
		struct ibv_wc received = expect(receiver.receive_cq, IBV_WC_SUCCESS, "a receive");
		bool said = received.wc_flags & IBV_WC_IP_CSUM_OK;
		bool right = sum(slot(0) + 14, 20, 0) == 0xffff && l4_sum(slot(0) + 14) == 0xffff;
		if (right != wanted)
			fail("checksums are %s though they were %sasked for", right ? "right" : "wrong", wanted ? "" : "not ");
		if (said != right)
			fail("the receiver calls checksums %s that are %s", said ? "right" : "wrong", right ? "right" : "wrong");
		expect(sender.send_cq, IBV_WC_SUCCESS, "a send");
	}
	done(ibv_destroy_flow(flow), "ibv_destroy_flow");
	end();
}

static void long_tcp_payload_is_cut_into_segments(void)
{
	enum { PAYLOAD = 20000, MSS = 1460, FRAMES = 14, HEADER = 54 };
	begin(32, 128, 1);
	struct ibv_flow *flow = steer(receiver.qp, station, 0);
	unsigned char header[HEADER] = { 0 };
	udp_frame(header, HEADERS_LEN, station, 7, 8);
	header[23] = 6; /* TCP */
	*(unsigned *)(header + 38) = htonl(1000000);
	header[46] = 5 << 4;
	header[47] = 0x19; /* FIN, PSH, ACK */
	for (int idx = 0; idx < PAYLOAD; idx++)
		sender.area[idx] = idx * 11;
	for (int idx = 0; idx < FRAMES; idx++)
		post_receive(receiver.qp, idx, SLOT_LEN);
	struct ibv_sge sge = { (uintptr_t)sender.area, PAYLOAD, sender.mr->lkey };
	struct ibv_send_wr *bad, request = { .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_TSO, .send_flags = IBV_SEND_IP_CSUM,
					     .tso = { .hdr = header, .hdr_sz = HEADER, .mss = MSS } };
	done(ibv_post_send(sender.qp, &request, &bad), "ibv_post_send");
	for (int idx = 0; idx < FRAMES; idx++) {
		struct ibv_wc received = expect(receiver.receive_cq, IBV_WC_SUCCESS, "a segment");
		unsigned char *ip = slot(idx) + 14;
		int len = idx == FRAMES - 1 ? PAYLOAD - idx * MSS : MSS;
		if ((int)received.byte_len != HEADER + len || ntohs(*(unsigned short *)(ip + 2)) != 40 + len)
			fail("segment %d has %u bytes", idx, received.byte_len);
		if (ntohl(*(unsigned *)(ip + 24)) != 1000000u + idx * MSS)
			fail("segment %d has sequence number %u", idx, ntohl(*(unsigned *)(ip + 24)));
		if (ip[33] != (idx == FRAMES - 1 ? 0x19 : 0x10))
			fail("segment %d has flags %#x", idx, ip[33]);
		if (sum(ip, 20, 0) != 0xffff || l4_sum(ip) != 0xffff || !(received.wc_flags & IBV_WC_IP_CSUM_OK))
			fail("segment %d has a wrong checksum", idx);
		if (memcmp(ip + 40, sender.area + idx * MSS, len))
			fail("segment %d has other bytes", idx);
	}
	if (expect(sender.send_cq, IBV_WC_SUCCESS, "the send").opcode != IBV_WC_TSO)
		fail("the completion is not one of a TSO");
	expect_nothing(sender.send_cq, "there was more than one completion");
	done(ibv_destroy_flow(flow), "ibv_destroy_flow");
	end();
}

static void hash_spreads_flows_over_work_queues(void)
{
	enum { QUEUES = 4, FLOWS = 64 };
	static unsigned char key[40];
	for (int idx = 0; idx < 40; idx++)
		key[idx] = idx * 37 + 1;
	begin(16, 0, 1);
	struct ibv_wq *queues[QUEUES];
	struct ibv_cq *cqs[QUEUES];
	for (int idx = 0; idx < QUEUES; idx++) {
		cqs[idx] = ibv_create_cq(receiver.context, 16, NULL, NULL, 0);
		must(cqs[idx], "ibv_create_cq");
		struct ibv_wq_init_attr wanted = { .wq_type = IBV_WQT_RQ, .max_wr = 16, .max_sge = 1, .pd = receiver.pd, .cq = cqs[idx] };
		queues[idx] = ibv_create_wq(receiver.context, &wanted);
		must(queues[idx], "ibv_create_wq");
		struct ibv_wq_attr ready = { .attr_mask = IBV_WQ_ATTR_STATE, .wq_state = IBV_WQS_RDY };
		done(ibv_modify_wq(queues[idx], &ready), "ibv_modify_wq");
	}
	struct ibv_rwq_ind_table_init_attr table_wanted = { .log_ind_tbl_size = 2, .ind_tbl = queues };
	struct ibv_rwq_ind_table *table = ibv_create_rwq_ind_table(receiver.context, &table_wanted);
	must(table, "ibv_create_rwq_ind_table");
	struct ibv_qp_init_attr_ex wanted = {
		.qp_type = IBV_QPT_RAW_PACKET,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_IND_TABLE | IBV_QP_INIT_ATTR_RX_HASH,
		.pd = receiver.pd,
		.rwq_ind_tbl = table,
		.rx_hash_conf = { .rx_hash_function = IBV_RX_HASH_FUNC_TOEPLITZ, .rx_hash_key_len = 40, .rx_hash_key = key,
				  .rx_hash_fields_mask = IBV_RX_HASH_SRC_IPV4 | IBV_RX_HASH_DST_IPV4 | IBV_RX_HASH_SRC_PORT_UDP |
							 IBV_RX_HASH_DST_PORT_UDP },
	};
	struct ibv_qp *spread = ibv_create_qp_ex(receiver.context, &wanted);
	must(spread, "ibv_create_qp_ex for RSS");
	struct ibv_flow *flow = steer(spread, station, 0);
	int home[FLOWS], used = 0;
	bool seen[QUEUES] = { false };
	for (int round = 0; round < 2; round++)
		for (int port = 0; port < FLOWS; port++) {
			int found = -1;
			udp_frame(sender.area, 100, station, 1000 + port, 9);
			for (int idx = 0; idx < QUEUES; idx++) {
				struct ibv_sge sge = { (uintptr_t)slot(idx), SLOT_LEN, receiver.mr->lkey };
				struct ibv_recv_wr *bad, request = { .sg_list = &sge, .num_sge = 1 };
				if (!round && !port)
					for (int credit = 0; credit < 8; credit++)
						done(ibv_post_wq_recv(queues[idx], &request, &bad), "ibv_post_wq_recv");
			}
			post_send(sender.area, 100, port, 0);
			expect(sender.send_cq, IBV_WC_SUCCESS, "a send");
			long give_up = now_ms() + PATIENCE_MS;
			while (found < 0 && now_ms() < give_up)
				for (int idx = 0; idx < QUEUES && found < 0; idx++) {
					struct ibv_wc completion;
					if (ibv_poll_cq(cqs[idx], 1, &completion) == 1 && completion.status == IBV_WC_SUCCESS)
						found = idx;
				}
			if (found < 0)
				fail("the frame of flow %d came to no queue", port);
			struct ibv_sge sge = { (uintptr_t)slot(found), SLOT_LEN, receiver.mr->lkey };
			struct ibv_recv_wr *bad, request = { .sg_list = &sge, .num_sge = 1 };
			done(ibv_post_wq_recv(queues[found], &request, &bad), "ibv_post_wq_recv");
			if (round && home[port] != found)
				fail("flow %d came to queue %d, and later to %d", port, home[port], found);
			home[port] = found;
			used += !seen[found];
			seen[found] = true;
		}
	if (used != QUEUES)
		fail("%d flows went to %d of %d queues", FLOWS, used, QUEUES);
	done(ibv_destroy_flow(flow), "ibv_destroy_flow");
	done(ibv_destroy_qp(spread), "ibv_destroy_qp");
	done(ibv_destroy_rwq_ind_table(table), "ibv_destroy_rwq_ind_table");
	for (int idx = 0; idx < QUEUES; idx++) {
		done(ibv_destroy_wq(queues[idx]), "ibv_destroy_wq");
		done(ibv_destroy_cq(cqs[idx]), "ibv_destroy_cq");
	}
	end();
}

/* The first message in the channel, none where none comes. */
static bool event_comes(int patience_ms)
{
	struct pollfd waiting = { .fd = receiver.channel->fd, .events = POLLIN };
	return poll(&waiting, 1, patience_ms) == 1;
}

static void armed_queue_raises_one_event(void)
{
	begin(16, 0, 1);
	struct ibv_flow *flow = steer(receiver.qp, station, 0);
	for (int round = 0; round < 5; round++) {
		done(ibv_req_notify_cq(receiver.receive_cq, 0), "ibv_req_notify_cq");
		if (event_comes(QUIET_MS / 4))
			fail("there was an event before a frame");
		for (int idx = 0; idx < 2; idx++) {
			post_receive(receiver.qp, idx, SLOT_LEN);
			udp_frame(sender.area, 100, station, 1, 2);
			post_send(sender.area, 100, 0, 0);
			expect(sender.send_cq, IBV_WC_SUCCESS, "a send");
		}
		struct ibv_cq *cq;
		void *context;
		if (!event_comes(PATIENCE_MS) || ibv_get_cq_event(receiver.channel, &cq, &context))
			fail("there was no event for a frame");
		if (cq != receiver.receive_cq || context != fact)
			fail("the event is of another queue");
		ibv_ack_cq_events(cq, 1);
		if (event_comes(QUIET_MS / 4))
			fail("there was a second event without arming");
		expect(receiver.receive_cq, IBV_WC_SUCCESS, "the first receive");
		expect(receiver.receive_cq, IBV_WC_SUCCESS, "the second receive");
	}
	done(ibv_destroy_flow(flow), "ibv_destroy_flow");
	end();
}

static void wrong_key_is_a_protection_error_and_the_rest_is_flushed(void)
{
	begin(16, 0, 1);
	struct ibv_flow *flow = steer(receiver.qp, station, 0);
	udp_frame(sender.area, 1000, station, 1, 2);
	struct ibv_sge sge = { (uintptr_t)sender.area, 1000, sender.mr->lkey ^ 0xff00 };
	struct ibv_send_wr *bad, request = { .wr_id = 1, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND };
	done(ibv_post_send(sender.qp, &request, &bad), "ibv_post_send");
	expect(sender.send_cq, IBV_WC_LOC_PROT_ERR, "a send with a wrong key");
	for (int id = 2; id < 5; id++) {
		post_send(sender.area, 1000, id, 0);
		if ((int)expect(sender.send_cq, IBV_WC_WR_FLUSH_ERR, "a send after an error").wr_id != id)
			fail("another send was flushed than number %d", id);
	}
	to_state(sender.qp, IBV_QPS_RESET);
	to_rts(sender.qp);
	post_receive(receiver.qp, 0, SLOT_LEN);
	post_send(sender.area, 1000, 9, 0);
	expect(sender.send_cq, IBV_WC_SUCCESS, "a send after the recovery");
	expect(receiver.receive_cq, IBV_WC_SUCCESS, "a receive after the recovery");
	done(ibv_destroy_flow(flow), "ibv_destroy_flow");
	end();
}

static void queue_in_error_flushes_what_was_posted(void)
{
	begin(16, 0, 1);
	for (int idx = 0; idx < 10; idx++)
		post_receive(receiver.qp, idx, SLOT_LEN);
	to_state(receiver.qp, IBV_QPS_ERR);
	for (int idx = 0; idx < 10; idx++)
		if ((int)expect(receiver.receive_cq, IBV_WC_WR_FLUSH_ERR, "a receive of a queue in error").wr_id != idx)
			fail("receives were not flushed in order");
	end();
}

static void frame_longer_than_its_buffer_is_a_length_error(void)
{
	begin(16, 0, 1);
	struct ibv_flow *flow = steer(receiver.qp, station, 0);
	memset(slot(0), 0x5a, SLOT_LEN);
	post_receive(receiver.qp, 0, 100);
	udp_frame(sender.area, 101, station, 1, 2);
	post_send(sender.area, 101, 0, 0);
	expect(receiver.receive_cq, IBV_WC_LOC_LEN_ERR, "a frame that is too long");
	if (slot(0)[100] != 0x5a)
		fail("bytes behind the buffer were written");
	done(ibv_destroy_flow(flow), "ibv_destroy_flow");
	end();
}

static void only_what_a_rule_names_arrives(void)
{
	begin(16, 0, 1);
	struct ibv_flow *flow = steer(receiver.qp, station, 4242);
	for (int idx = 0; idx < 3; idx++)
		post_receive(receiver.qp, idx, SLOT_LEN);
	static const int ports[3] = { 4241, 4242, 4243 };
	for (int idx = 0; idx < 3; idx++) {
		udp_frame(sender.area + idx * SLOT_LEN, 100, station, 1, ports[idx]);
		post_send(sender.area + idx * SLOT_LEN, 100, idx, IBV_SEND_IP_CSUM);
	}
	expect(receiver.receive_cq, IBV_WC_SUCCESS, "the frame that the rule names");
	if (ntohs(*(unsigned short *)(slot(0) + 36)) != 4242)
		fail("another frame arrived than the one that the rule names");
	expect_nothing(receiver.receive_cq, "a frame arrived that no rule names");
	done(ibv_destroy_flow(flow), "ibv_destroy_flow");
	udp_frame(sender.area, 100, station, 1, 4242);
	post_send(sender.area, 100, 0, IBV_SEND_IP_CSUM);
	expect_nothing(receiver.receive_cq, "a frame arrived though its rule was taken back");
	end();
}

static void multicast_reaches_every_queue_with_a_rule(void)
{
	static const unsigned char group[6] = { 1, 0, 0x5e, 1, 2, 3 };
	begin(16, 0, 1);
	struct ibv_qp *second = make_qp(&receiver, 16, 0, 1);
	to_rts(second);
	struct ibv_flow *flows[2] = { steer(receiver.qp, group, 0), steer(second, group, 0) };
	post_receive(receiver.qp, 0, SLOT_LEN);
	post_receive(second, 1, SLOT_LEN);
	udp_frame(sender.area, 100, group, 1, 2);
	post_send(sender.area, 100, 0, 0);
	unsigned queues = 0;
	for (int idx = 0; idx < 2; idx++)
		queues |= 1u << expect(receiver.receive_cq, IBV_WC_SUCCESS, "a copy of the frame").wr_id;
	if (queues != 3)
		fail("both copies went to one queue");
	if (memcmp(slot(0), sender.area, 100) || memcmp(slot(1), sender.area, 100))
		fail("a copy has other bytes");
	for (int idx = 0; idx < 2; idx++)
		done(ibv_destroy_flow(flows[idx]), "ibv_destroy_flow");
	done(ibv_destroy_qp(second), "ibv_destroy_qp");
	end();
}

static void completions_carry_times_that_do_not_go_back(void)
{
	begin(16, 0, 1);
	struct ibv_cq_init_attr_ex wanted = { .cqe = 16, .wc_flags = IBV_WC_EX_WITH_BYTE_LEN | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP };
	struct ibv_cq_ex *cq = ibv_create_cq_ex(receiver.context, &wanted);
	must(cq, "ibv_create_cq_ex");
	struct ibv_cq *plain = receiver.receive_cq;
	receiver.receive_cq = ibv_cq_ex_to_cq(cq);
	struct ibv_qp *stamped = make_qp(&receiver, 16, 0, 1);
	to_rts(stamped);
	struct ibv_flow *flow = steer(stamped, station, 0);
	uint64_t last = 0;
	for (int round = 0; round < 20; round++) {
		post_receive(stamped, 0, SLOT_LEN);
		udp_frame(sender.area, 100, station, 1, 2);
		post_send(sender.area, 100, 0, 0);
		expect(sender.send_cq, IBV_WC_SUCCESS, "a send");
		struct ibv_poll_cq_attr none = { 0 };
		long end = now_ms() + PATIENCE_MS;
		int status;
		while ((status = ibv_start_poll(cq, &none)) == ENOENT && now_ms() < end)
			;
		done(status, "ibv_start_poll");
		uint64_t stamp = ibv_wc_read_completion_ts(cq);
		uint32_t len = ibv_wc_read_byte_len(cq);
		ibv_end_poll(cq);
		if (len != 100 || stamp <= last)
			fail("%u bytes at %lu after %lu", len, (unsigned long)stamp, (unsigned long)last);
		last = stamp;
	}
	done(ibv_destroy_flow(flow), "ibv_destroy_flow");
	done(ibv_destroy_qp(stamped), "ibv_destroy_qp");
	done(ibv_destroy_cq(receiver.receive_cq), "ibv_destroy_cq");
	receiver.receive_cq = plain;
	end();
}

static void objects_in_use_are_not_destroyed(void)
{
	begin(16, 0, 1);
	if (ibv_destroy_cq(receiver.receive_cq) != EBUSY)
		fail("a completion queue went while its queue pair was there");
	end();
}

static const struct {
	const char *name;
	void (*check)(void);
} facts[] = {
#define FACT(name) { #name, name }
	FACT(every_length_arrives_unchanged),
	FACT(small_rings_wrap_many_times),
	FACT(pieces_are_gathered_and_scattered),
	FACT(inline_data_needs_no_registered_memory),
	FACT(checksums_are_filled_in_and_judged),
	FACT(long_tcp_payload_is_cut_into_segments),
	FACT(hash_spreads_flows_over_work_queues),
	FACT(armed_queue_raises_one_event),
	FACT(wrong_key_is_a_protection_error_and_the_rest_is_flushed),
	FACT(queue_in_error_flushes_what_was_posted),
	FACT(frame_longer_than_its_buffer_is_a_length_error),
	FACT(only_what_a_rule_names_arrives),
	FACT(multicast_reaches_every_queue_with_a_rule),
	FACT(completions_carry_times_that_do_not_go_back),
	FACT(objects_in_use_are_not_destroyed),
};

int main(int count, char **arguments)
{
	if (count != 3) {
		fprintf(stderr, "usage: verbs SENDER RECEIVER\n");
		return 99;
	}
	setvbuf(stdout, NULL, _IOLBF, 0);
	open_side(&sender, arguments[1]);
	open_side(&receiver, arguments[2]);
	for (size_t idx = 0; idx < sizeof facts / sizeof *facts; idx++) {
		fact = facts[idx].name;
		if (setjmp(failed))
			return 1;
		facts[idx].check();
		printf("ok %s\n", fact);
	}
	return 0;
}
