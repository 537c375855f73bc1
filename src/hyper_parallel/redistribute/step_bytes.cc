#include "hyper_parallel/redistribute/step_bytes.h"

#include <algorithm>
#include <functional>
#include <string_view>
#include <utility>
#include <vector>

#include "hyper_parallel/base/checked.h"
#include "hyper_parallel/base/error.h"
#include "hyper_parallel/redistribute/cell_bytes.h"
#include "hyper_parallel/redistribute/combine.h"

namespace hyper_parallel {
namespace {

using ConstBytes = std::span<const std::byte>;
using Bytes = std::span<std::byte>;

constexpr int64_t kBitsPerByte = 8;

void check_size(std::string_view what, ConstBytes buffer, int64_t numel, int64_t item_bytes) {
  HP_CHECK(item_bytes >= 1, kInvalidArgument, "item_bytes is ", item_bytes, " but must be at least 1");
  HP_CHECK(std::cmp_equal(buffer.size(), checked_mul(numel, item_bytes)), kInvalidArgument, what, " has ",
           buffer.size(), " bytes but the step has ", numel, " elements of ", item_bytes, " bytes there");
}

void check_apart(ConstBytes source, ConstBytes target) {
  const std::less<> before;
  const bool apart =
      source.empty() || target.empty() ||
      !(before(source.data(), target.data() + target.size()) && before(target.data(), source.data() + source.size()));
  HP_CHECK(apart, kInvalidArgument, "what is read and what is written share memory but must lie apart");
}

void check_is_move(std::string_view function, const RankStep& step) {
  HP_CHECK(!step.combine, kInvalidArgument, function, ": the step is a reduction; combine its messages");
}

const Transfer& message_at(const std::vector<Transfer>& transfers, int64_t index, std::string_view verb) {
  HP_CHECK(index >= 0 && std::cmp_less(index, transfers.size()), kOutOfRange, "message ", index,
           " is out of range: the step ", verb, " ", transfers.size());
  return transfers[static_cast<size_t>(index)];
}

/// This rank's own share of what it will own: a part of `source` where it lies end to end there, else packed in
/// `scratch`.
ConstBytes own_share(const RankStep& step, int64_t item_bytes, ConstBytes source, std::vector<std::byte>& scratch) {
  if (step.copies.size() == 1 && step.copies.front().from.is_contiguous()) {
    const StridedView& run = step.copies.front().from;
    HP_DCHECK(run.offset >= 0 && run.offset + run.numel() <= step.source_numel);
    return source.subspan(static_cast<size_t>(run.offset * item_bytes), static_cast<size_t>(run.numel() * item_bytes));
  }
  std::vector<StridedView> from;
  from.reserve(step.copies.size());
  for (const LocalCopy& copy : step.copies) from.push_back(copy.from);
  scratch.resize(static_cast<size_t>(step.target_numel * item_bytes));
  pack_cells(from, item_bytes, source, scratch);
  return scratch;
}

/// The shares of all members in mesh order.
std::vector<ConstBytes> ordered_terms(const RankStep& step, ConstBytes own, std::span<const ConstBytes> messages) {
  std::vector<ConstBytes> terms;
  terms.reserve(step.combine->sources.size());
  for (const int64_t rank : step.combine->sources) {
    const auto receive = std::ranges::find(step.receives, rank, &Transfer::peer);
    terms.push_back(receive == step.receives.end() ? own
                                                   : messages[static_cast<size_t>(receive - step.receives.begin())]);
  }
  return terms;
}

void check_messages(const RankStep& step, std::span<const ConstBytes> messages, int64_t item_bytes) {
  HP_CHECK(messages.size() == step.receives.size(), kInvalidArgument, "there are ", messages.size(),
           " messages but the step receives ", step.receives.size());
  for (size_t i = 0; i < messages.size(); ++i) {
    check_size(str_cat("messages[", i, "]"), messages[i], step.receives[i].numel, item_bytes);
  }
}

}  // namespace

void copy_own(const RankStep& step, int64_t item_bytes, ConstBytes source, Bytes target) {
  check_is_move("copy_own", step);
  check_size("source", source, step.source_numel, item_bytes);
  check_size("target", target, step.target_numel, item_bytes);
  check_apart(source, target);
  for (const LocalCopy& copy : step.copies) copy_cells(copy.from, source, copy.to, target, item_bytes);
}

void pack_message(const RankStep& step, int64_t send, int64_t item_bytes, ConstBytes source, Bytes message) {
  const Transfer& transfer = message_at(step.sends, send, "sends");
  check_size("source", source, step.source_numel, item_bytes);
  check_size("message", message, transfer.numel, item_bytes);
  check_apart(source, message);
  pack_cells(transfer.pieces, item_bytes, source, message);
}

void unpack_message(const RankStep& step, int64_t receive, int64_t item_bytes, ConstBytes message, Bytes target) {
  check_is_move("unpack", step);
  const Transfer& transfer = message_at(step.receives, receive, "receives");
  check_size("message", message, transfer.numel, item_bytes);
  check_size("target", target, step.target_numel, item_bytes);
  check_apart(message, target);
  unpack_cells(transfer.pieces, item_bytes, message, target);
}

void combine_messages(const RankStep& step, DType dtype, ConstBytes source, std::span<const ConstBytes> messages,
                      Bytes target) {
  HP_CHECK(step.combine.has_value(), kInvalidArgument, "combine: the step is a move; unpack its messages");
  check_reducible("redistribute", dtype, step.combine->op);
  const int64_t item_bytes = bits_per_element(dtype) / kBitsPerByte;
  check_size("source", source, step.source_numel, item_bytes);
  check_size("target", target, step.target_numel, item_bytes);
  check_messages(step, messages, item_bytes);
  check_apart(source, target);
  if (step.target_numel == 0) return;
  std::vector<std::byte> scratch;
  const std::vector<ConstBytes> terms = ordered_terms(step, own_share(step, item_bytes, source, scratch), messages);
  for (const ConstBytes term : terms) check_apart(term, target);
  std::vector<StridedView> order;
  for (const LocalCopy& copy : step.copies) order.push_back(copy.to);
  if (order == std::vector{run_view(0, step.target_numel)}) {
    combine_terms(*step.combine, dtype, terms, target);
    return;
  }
  std::vector<std::byte> combined(target.size());
  combine_terms(*step.combine, dtype, terms, combined);
  unpack_cells(order, item_bytes, combined, target);
}

}  // namespace hyper_parallel
