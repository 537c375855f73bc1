// The example of the README: one of four processes. Start all four:
//   for r in 0 1 2 3; do build/dev/examples/quickstart $r /tmp/rendezvous & done; wait

#include <ATen/ops/ones.h>

#include <cstdlib>
#include <iostream>

// [readme]
#include "hyper_parallel/torch/dtensor.h"
#include "hyper_parallel/torch/elementwise.h"
#include "hyper_parallel/torch/gloo_group.h"
using namespace hyper_parallel;

void run(int rank, const char* rendezvous) {
  MeshCommunicator mesh(create_gloo_group(create_file_store(rendezvous, 4), rank, 4), DeviceMesh({4}, {"fsdp"}));
  DTensor weight = distribute(at::ones({16, 32}).requires_grad_(), mesh, {RaggedShard({0}, {1, 2, 0, 5})});
  DTensor active = relu(weight * 2 - 1);           // on this rank's share: 64, 128, 0 or 320 elements
  DTensor rows = active.redistribute({Shard(0)});  // one all-to-all, each rank gets just what it lacks
  at::Tensor whole = active.full_tensor();         // one variable all-gather, no padding
  whole.sum().backward();                          // one variable reduce-scatter, also where the share is empty
  std::cout << to_string(weight) + "\n" + to_string(rows) + "\n";
}
// [readme]

int main(int argc, char** argv) {
  if (argc != 3) {
    std::cerr << "usage: quickstart RANK RENDEZVOUS_FILE\n";
    return 2;
  }
  try {
    run(std::atoi(argv[1]), argv[2]);
    return 0;
  } catch (const std::exception& error) {
    std::cerr << "quickstart: " << error.what() << "\n";
    return 1;
  }
}
