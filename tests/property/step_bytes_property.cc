// Every plan, run on raw bytes for all ranks as a framework without C++ runs it, against the simulator.

#include <map>
#include <utility>
#include <vector>

#include "hyper_parallel/redistribute/planner.h"
#include "hyper_parallel/redistribute/step_bytes.h"
#include "hyper_parallel/simulate/simulator.h"
#include "tests/property/random_cases.h"

namespace hyper_parallel::test {
namespace {

using Bytes = std::vector<std::byte>;
using Buffers = std::map<int64_t, Bytes>;                   // global rank -> its flat local tensor
using Mail = std::map<std::pair<int64_t, int64_t>, Bytes>;  // (sender, receiver) -> message
constexpr int64_t kItemBytes = sizeof(double);

Bytes filled(int64_t elements) { return Bytes(static_cast<size_t>(elements * kItemBytes), std::byte{0xFF}); }

Buffers bytes_of(const Shares& shares) {
  Buffers buffers;
  for (const auto& [rank, share] : shares) {
    const auto bytes = std::as_bytes(std::span(share));
    buffers[rank] = Bytes(bytes.begin(), bytes.end());
  }
  return buffers;
}

/// What `rank` makes of its source and of the messages to it.
Bytes run_rank(const RankStep& step, int64_t rank, const Bytes& source, const Mail& mail) {
  Bytes target = filled(step.target_numel);
  if (step.combine) {
    std::vector<std::span<const std::byte>> messages;
    for (const Transfer& receive : step.receives) messages.emplace_back(mail.at({receive.peer, rank}));
    combine_messages(step, DType::kF64, source, messages, target);
    return target;
  }
  copy_own(step, kItemBytes, source, target);
  for (size_t i = 0; i < step.receives.size(); ++i) {
    unpack_message(step, static_cast<int64_t>(i), kItemBytes, mail.at({step.receives[i].peer, rank}), target);
  }
  return target;
}

Buffers run_step(const Step& step, const Buffers& sources) {
  std::map<int64_t, RankStep> programs;
  Mail mail;
  for (const auto& [rank, source] : sources) {
    const RankStep& program = programs.emplace(rank, rank_step(step, rank)).first->second;
    for (size_t i = 0; i < program.sends.size(); ++i) {
      Bytes message = filled(program.sends[i].numel);
      pack_message(program, static_cast<int64_t>(i), kItemBytes, source, message);
      mail[{rank, program.sends[i].peer}] = std::move(message);
    }
  }
  Buffers targets;
  for (const auto& [rank, program] : programs) targets[rank] = run_rank(program, rank, sources.at(rank), mail);
  return targets;
}

/// Shares of no round values: what is combined in another order, or at another place, has other bits.
Shares draw_shares(const Distribution& distribution) {
  Shares shares;
  for (const int64_t rank : distribution.mesh().ranks()) {
    const int64_t numel = distribution.owned(*distribution.mesh().coordinate(rank)).numel();
    for (int64_t cell = 0; cell < numel; ++cell) {
      shares[rank].push_back(static_cast<double>(draw(-1'000'000, 1'000'000)) / 7);
    }
    shares[rank];
  }
  return shares;
}

void check_on_bytes(const Redistribution& pair, const Shares& shares) {
  const Plan plan = plan_redistribution(pair.source, pair.target, pair.shape);
  Buffers buffers = bytes_of(shares);
  for (const Step& step : plan.steps) buffers = run_step(step, buffers);
  RC_ASSERT(buffers == bytes_of(simulate(plan, shares)));
}

TEST(StepBytes, OfAllRanksWithoutPartial_AreWhatTheSimulatorGives) {
  check_property(4000, [] {
    const Redistribution pair = *drawn(draw_redistribution_without_partial);
    const Shares shares = *drawn([pair] { return draw_shares(Distribution(pair.source, pair.shape)); });
    check_on_bytes(pair, shares);
  });
}

TEST(StepBytes, OfAllRanksFromPartial_AreWhatTheSimulatorGives) {
  check_property(4000, [] {
    const Redistribution pair = *drawn(draw_redistribution_of_partial);
    const Shares shares = *drawn([pair] { return draw_shares(Distribution(pair.source, pair.shape)); });
    check_on_bytes(pair, shares);
  });
}

}  // namespace
}  // namespace hyper_parallel::test
