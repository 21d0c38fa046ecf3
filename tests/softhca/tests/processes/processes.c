/*
 * Processes around a device that is open: children of fork and vfork, and one that turns the NIC
 * itself. A line `ok FACT` for each fact, `FAILED FACT` and exit code 1 at the first that does not
 * hold.
 */
#include <dlfcn.h>
#include <errno.h>
#include <infiniband/verbs.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static void fact(const char *fact, int holds)
{
	printf("%s %s\n", holds ? "ok" : "FAILED", fact);
	fflush(stdout);
	if (!holds)
		exit(1);
}

static struct ibv_context *open_device(void)
{
	struct ibv_device **devices = ibv_get_device_list(NULL);
	struct ibv_context *context = devices && devices[0] ? ibv_open_device(devices[0]) : NULL;
	ibv_free_device_list(devices);
	return context;
}

/* A command to the kernel and one to the NIC. */
static int works(struct ibv_context *context)
{
	struct ibv_port_attr port;
	struct ibv_pd *pd = ibv_alloc_pd(context);
	return pd && !ibv_query_port(context, 1, &port) && port.state == IBV_PORT_ACTIVE && !ibv_dealloc_pd(pd);
}

/* The exit code of a child that does this. */
static int child(int (*act)(struct ibv_context *), struct ibv_context *context)
{
	int status = 0;
	pid_t pid = fork();
	if (pid == 0)
		_exit(act(context));
	return waitpid(pid, &status, 0) == pid && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static int inherited_is_dead(struct ibv_context *context)
{
	return ibv_alloc_pd(context) != NULL;
}

static int own_works(struct ibv_context *inherited)
{
	struct ibv_context *context = open_device();
	(void)inherited;
	return !(context && works(context) && !ibv_close_device(context));
}

static int closes_all(struct ibv_context *context)
{
	(void)context;
	for (int fd = 3; fd < 256; fd++)
		close(fd);
	return 0;
}

static void processes(void)
{
	struct ibv_context *context = open_device();
	fact("device opens", context && works(context));
	fact("child cannot use its parent's device", child(inherited_is_dead, context) == 0);
	fact("parent's device works after that", works(context));
	fact("child can open it anew", child(own_works, context) == 0);
	fact("child that closes every descriptor is no harm", child(closes_all, context) == 0 && works(context));

	pid_t pid = vfork();
	if (pid == 0) {
		close(context->cmd_fd);
		_exit(0);
	}
	waitpid(pid, NULL, 0);
	fact("child of vfork that closes the descriptor is no harm", works(context));
	fact("shell can be started", system("exit 0") == 0 && works(context));

	for (int round = 0; round < 100; round++)
		if (!works(context) || child(closes_all, context) != 0)
			fact("hundred forks between commands", 0);
	fact("hundred forks between commands", 1);
	fact("device closes", !ibv_close_device(context));
	context = open_device();
	fact("device opens again", context && works(context));
	/* Left open: the process ends with it. */
}

/* A QP without flow rules on a cable that leads back to it: what it sends is seen by the
 * counters. */
static void turn_by_hand(void)
{
	size_t (*step)(size_t) = (size_t(*)(size_t))dlsym(RTLD_DEFAULT, "softhca_step");
	uint64_t (*counter)(const char *) = (uint64_t(*)(const char *))dlsym(RTLD_DEFAULT, "softhca_counter");
	size_t (*diagnosis)(char *, size_t) = (size_t(*)(char *, size_t))dlsym(RTLD_DEFAULT, "softhca_diagnosis");
	fact("library offers its functions", step && counter && diagnosis);
	fact("without a device a step does nothing", step(64) == 0 && counter("tx_frames") == UINT64_MAX);

	static char frame[64] __attribute__((aligned(64))) = { 2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x88, 0xb5 };
	struct ibv_context *context = open_device();
	struct ibv_pd *pd = context ? ibv_alloc_pd(context) : NULL;
	struct ibv_cq *cq = context ? ibv_create_cq(context, 16, NULL, NULL, 0) : NULL;
	fact("device opens", pd && cq);
	struct ibv_mr *mr = ibv_reg_mr(pd, frame, sizeof frame, IBV_ACCESS_LOCAL_WRITE);
	struct ibv_qp_init_attr wanted = {
		.send_cq = cq,
		.recv_cq = cq,
		.cap = { .max_send_wr = 8, .max_send_sge = 1 },
		.qp_type = IBV_QPT_RAW_PACKET,
		.sq_sig_all = 1,
	};
	struct ibv_qp *qp = ibv_create_qp(pd, &wanted);
	struct ibv_qp_attr state = { .qp_state = IBV_QPS_INIT, .port_num = 1 };
	fact("queue is made", mr && qp && !ibv_modify_qp(qp, &state, IBV_QP_STATE | IBV_QP_PORT));
	for (state.qp_state = IBV_QPS_RTR; state.qp_state <= IBV_QPS_RTS; state.qp_state++)
		fact("queue is made ready", !ibv_modify_qp(qp, &state, IBV_QP_STATE));

	struct ibv_sge part = { .addr = (uintptr_t)frame, .length = 60, .lkey = mr->lkey };
	struct ibv_send_wr send = { .sg_list = &part, .num_sge = 1, .opcode = IBV_WR_SEND }, *bad;
	struct timespec moment = { .tv_nsec = 50000000 };
	struct ibv_wc done;
	fact("frame is posted", !ibv_post_send(qp, &send, &bad));
	nanosleep(&moment, NULL);
	fact("nothing moves by itself", ibv_poll_cq(cq, 1, &done) == 0 && counter("tx_frames") == 0);
	fact("a step moves it", step(64) > 0 && ibv_poll_cq(cq, 1, &done) == 1 && done.status == IBV_WC_SUCCESS);
	fact("it was counted", counter("tx_frames") == 1 && counter("mlx5_0.tx_frames") == 1);
	fact("another device has not counted it", counter("mlx5_1.tx_frames") == UINT64_MAX);
	fact("no other counter", counter("tx_elephants") == UINT64_MAX);

	char sentence[256];
	fact("there is no complaint", diagnosis(sentence, sizeof sentence) == 0);
	part.lkey++;
	fact("wrong key is posted", !ibv_post_send(qp, &send, &bad));
	fact("wrong key is an error", step(64) > 0 && ibv_poll_cq(cq, 1, &done) == 1 && done.status == IBV_WC_LOC_PROT_ERR);
	fact("there is a complaint", diagnosis(sentence, sizeof sentence) == strlen(sentence) && strstr(sentence, "mlx5_0"));
	fact("it is told once", diagnosis(sentence, sizeof sentence) == 0);
	int (*pull)(const char *) = (int (*)(const char *))dlsym(RTLD_DEFAULT, "softhca_remove");
	struct ibv_async_event event;
	fact("there is no other device to pull out", pull && !pull("mlx5_1"));
	fact("device is pulled out", pull("mlx5_0") == 1);
	fact("it is told", !ibv_get_async_event(context, &event) && event.event_type == IBV_EVENT_DEVICE_FATAL);
	ibv_ack_async_event(&event);
	part.lkey--;
	fact("no command works", !ibv_alloc_pd(context) && errno == EIO);
	fact("nothing moves", !ibv_post_send(qp, &send, &bad) && step(64) == 0 && ibv_poll_cq(cq, 1, &done) == 0);
	fact("objects cannot be destroyed any more", ibv_destroy_qp(qp) == EIO && ibv_dereg_mr(mr) == EIO);
	fact("it is closed", !ibv_close_device(context));
	context = open_device();
	fact("plugged in again, it is new", context && works(context) && counter("tx_frames") == 0);
	fact("and closes", !ibv_close_device(context));
}

int main(int count, char **arguments)
{
	if (count > 1 && !strcmp(arguments[1], "manual"))
		turn_by_hand();
	else
		processes();
	return 0;
}
