/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ways in which captured graphs come about, change and end, one sub-command each, for tests/cli/graphs.sh. On the
 * simulator, in a communicator of one rank.
 *
 * A call's count says which capture it is of: piece N captures all-reduces of N elements.
 */
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cuda.h"
#include "cases.h"

enum { COUNT = 1024 };

static ncclComm_t comm;
static cudaStream_t stream;

static void allreduce(size_t count, cudaStream_t on) {
  check(ncclAllReduce(buffer, buffer + COUNT, count, ncclFloat, ncclSum, comm, on), "allreduce");
}

static cudaGraph_t piece(size_t count) {
  cudaGraph_t graph;
  check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "begin");
  if (count)
    allreduce(count, stream);
  check(cudaStreamEndCapture(stream, &graph), "end");
  return graph;
}

static cudaGraphExec_t executable(cudaGraph_t graph) {
  cudaGraphExec_t exec;
  check(cudaGraphInstantiateWithFlags(&exec, graph, 0), "instantiate");
  return exec;
}

static void launch(cudaGraphExec_t exec) {
  check(cudaGraphLaunch(exec, stream), "launch");
}

static void clones(void) {
  cudaGraph_t clone, graph = piece(1);
  check(cudaGraphClone(&clone, graph), "clone");
  check(cudaGraphDestroy(graph), "destroy");
  cudaGraphExec_t exec = executable(clone);
  check(cudaGraphDestroy(clone), "destroy");
  check(cudaGraphUpload(exec, stream), "upload");
  launch(exec);
}

/* As XLA does: a graph of nodes, some of which are captured graphs. */
static void children(void) {
  cudaGraph_t graph, first = piece(1), second = piece(2), third = piece(3);
  cudaGraphNode_t node;
  struct cudaGraphNodeParams params = {.type = cudaGraphNodeTypeGraph, .graph = {third}};
  check(cudaGraphCreate(&graph, 0), "create");
  check(cudaGraphAddChildGraphNode(&node, graph, NULL, 0, first), "child");
  check(cudaGraphAddChildGraphNode(&node, graph, &node, 1, second), "child");
  check(cudaGraphAddNode(&node, graph, &node, NULL, 1, &params), "child");
  check(cudaGraphAddChildGraphNode(&node, graph, &node, 1, piece(0)), "child");
  launch(executable(graph));
  launch(executable(first));
}

/* Not of CUDA 13 but of 12: without data of edges. */
static void child_of_an_older_interface(void) {
  cudaGraph_t graph, child = piece(1);
  cudaGraphNode_t node;
  struct cudaGraphNodeParams params = {.type = cudaGraphNodeTypeGraph, .graph = {child}};
  CUresult (*add)(void **, CUgraph, const void *, size_t, void *, void *);
  void *old = (void *)cudaGraphAddNode;
  memcpy(&add, &old, sizeof add);
  check(cudaGraphCreate(&graph, 0), "create");
  (void)add((void **)&node, graph, NULL, 0, &params, NULL); /* the simulator's refuses it */
}

/* So many that their number might be an address. */
static void many_dependencies(void) {
  enum { DEPENDENCIES = 70000 };
  static cudaGraphNode_t on[DEPENDENCIES];
  cudaGraph_t graph, child = piece(1);
  cudaGraphNode_t node;
  struct cudaGraphNodeParams params = {.type = cudaGraphNodeTypeGraph, .graph = {child}};
  check(cudaGraphCreate(&graph, 0), "create");
  check(cudaGraphAddChildGraphNode(&node, graph, NULL, 0, piece(2)), "child");
  for (int i = 0; i < DEPENDENCIES; i++)
    on[i] = node;
  check(cudaGraphAddNode(&node, graph, on, NULL, DEPENDENCIES, &params), "child");
  launch(executable(graph));
}

static void updates(void) {
  cudaGraphExec_t exec = executable(piece(1));
  launch(exec);
  check(cudaGraphExecUpdate(exec, piece(2), NULL), "update");
  launch(exec);
  check(cudaGraphExecUpdate(exec, piece(0), NULL), "update");
  launch(exec);
}

static void captures_into_one(void) {
  cudaGraph_t graph, same;
  check(cudaGraphCreate(&graph, 0), "create");
  for (size_t count = 0; count <= 3; count++) {
    check(cudaStreamBeginCaptureToGraph(stream, graph, NULL, NULL, 0, cudaStreamCaptureModeRelaxed),
          "begin");
    if (count != 2)
      allreduce(count + 1, stream);
    check(cudaStreamEndCapture(stream, &same), "end");
    check(same != graph, "another graph");
  }
  launch(executable(graph));
}

static void launches_under_capture(void) {
  cudaGraph_t graph;
  cudaGraphExec_t exec = executable(piece(1));
  check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed), "begin");
  launch(exec);
  launch(exec);
  check(cudaStreamEndCapture(stream, &graph), "end");
  check(cudaGraphExecDestroy(exec), "destroy");
  launch(executable(graph));
}

static void streams(void) {
  cudaStream_t other;
  cudaGraphExec_t exec = executable(piece(1));
  check(cudaStreamCreate(&other), "stream");
  launch(exec);
  check(cudaGraphLaunch(exec, other), "launch");
  launch(exec);
  check(cudaStreamSynchronize(other), "sync");
}

/* Handles come back: who is destroyed is forgotten, whatever comes in its place. */
static void ends(void) {
  for (size_t count = 1; count <= 40; count++) {
    cudaGraph_t graph = piece(count % 2 ? count : 0);
    cudaGraphExec_t exec = executable(graph);
    if (count % 3)
      check(cudaGraphDestroy(graph), "destroy");
    launch(exec);
    check(cudaStreamSynchronize(stream), "sync");
    check(cudaGraphExecDestroy(exec), "destroy");
    if (count % 3 == 0)
      check(cudaGraphDestroy(graph), "destroy");
  }
}

static void many(void) {
  enum { MANY = 6000 };
  static cudaGraphExec_t execs[MANY];
  for (int i = 0; i < MANY; i++) {
    cudaGraph_t graph = piece(1 + (size_t)i % COUNT);
    execs[i] = executable(graph);
    check(cudaGraphDestroy(graph), "destroy");
  }
  for (int i = 0; i < MANY; i++)
    launch(execs[i]);
}

/* Far more than there is room for at a time. */
static void come_and_go(void) {
  enum { KEPT = 64 };
  cudaGraphExec_t execs[KEPT] = {NULL};
  cudaGraph_t graph = piece(1), clone;
  for (int i = 0; i < 200000; i++) {
    cudaGraphExec_t *exec = &execs[i * 7 % KEPT];
    if (*exec)
      check(cudaGraphExecDestroy(*exec), "destroy");
    check(cudaGraphClone(&clone, graph), "clone");
    *exec = executable(clone);
    check(cudaGraphDestroy(clone), "destroy");
    if (i % 10000 == 0)
      launch(*exec);
  }
}

/* XLA, Triton and CuPy call the driver. */
static void driver(void) {
  CUgraph graph, clone, outer;
  CUgraphExec exec;
  void *node;
  CUevent event;
  check(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING), "event");
  check(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED), "begin");
  allreduce(1, stream);
  check(cuStreamEndCapture(stream, &graph), "end");
  check(cuGraphClone(&clone, graph), "clone");
  check(cuGraphCreate(&outer, 0), "create");
  check(cuGraphAddChildGraphNode(&node, outer, NULL, 0, clone), "child");
  check(cuGraphInstantiateWithFlags(&exec, clone, 0), "instantiate");
  check(cuGraphLaunch(exec, stream), "launch");
  check(cuGraphExecUpdate(exec, outer, NULL), "update");
  check(cuGraphDestroy(outer), "destroy");
  check(cuGraphDestroy(clone), "destroy");
  check(cuGraphDestroy(graph), "destroy");
  check(cuGraphLaunch(exec, stream), "launch");
  check(cuGraphExecDestroy(exec), "destroy");
  check(cuEventRecord(event, stream), "record");
  check(cuStreamWaitEvent(stream, event, 0), "wait");
  check(cuEventSynchronize(event), "sync");
  check(cuStreamSynchronize(stream), "sync");
  check(cuCtxSynchronize(), "sync");
}

/* In each thread another stream by one name. */
static void *in_a_thread(void *unused) {
  (void)unused;
  cudaGraph_t graph;
  cudaGraphExec_t exec;
  cudaEvent_t event;
  check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "event");
  check(cudaStreamBeginCapture_ptsz(NULL, cudaStreamCaptureModeThreadLocal), "begin");
  allreduce(1, cudaStreamPerThread);
  check(cudaStreamEndCapture_ptsz(NULL, &graph), "end");
  check(cudaGraphInstantiateWithFlags(&exec, graph, 0), "instantiate");
  check(cudaGraphLaunch_ptsz(exec, NULL), "launch");
  allreduce(2, cudaStreamPerThread);
  check(cudaEventRecord_ptsz(event, NULL), "record");
  check(cudaStreamWaitEvent_ptsz(NULL, event, 0), "wait");
  check(cudaStreamSynchronize_ptsz(NULL), "sync");
  check(cuGraphLaunch_ptsz(exec, NULL), "launch");
  check(cuStreamSynchronize_ptsz(NULL), "sync");
  return NULL;
}

static void threads(void) {
  pthread_t thread;
  in_a_thread(NULL);
  check(pthread_create(&thread, NULL, in_a_thread, NULL), "thread");
  pthread_join(thread, NULL);
}

static const struct {
  const char *name;
  void (*run)(void);
} cases[] = {{"clones", clones},
             {"children", children},
             {"older", child_of_an_older_interface},
             {"dependencies", many_dependencies},
             {"updates", updates},
             {"into", captures_into_one},
             {"nested", launches_under_capture},
             {"streams", streams},
             {"ends", ends},
             {"many", many},
             {"go", come_and_go},
             {"driver", driver},
             {"threads", threads}};

int main(int argc, char **argv) {
  comm = one_rank();
  check(cudaStreamCreate(&stream), "stream");
  for (size_t i = 0; argc == 2 && i < sizeof(cases) / sizeof(*cases); i++)
    if (strcmp(argv[1], cases[i].name) == 0) {
      cases[i].run();
      check(cudaStreamSynchronize(stream), "sync");
      puts("done");
      return 0;
    }
  fprintf(stderr, "usage: graph_cases CASE\n");
  return 2;
}
