#include "hyper_parallel/redistribute/plan.h"

#include <algorithm>
#include <iomanip>
#include <sstream>

#include "hyper_parallel/base/error.h"
#include "hyper_parallel/base/text.h"

namespace hyper_parallel {
namespace {

std::string_view pattern_name(MovePattern pattern) {
  switch (pattern) {
    case MovePattern::kLocal:
      return "slice";
    case MovePattern::kAllGather:
      return "all_gather";
    case MovePattern::kAllToAll:
      return "all_to_all";
  }
  raise(ErrorCode::kInternal, "unknown move pattern");
}

/// The op, or each dim's own where they differ.
std::string ops_text(const Step& step, const Reduce& reduce) {
  std::vector<std::string> ops;
  for (const int64_t dim : reduce.mesh_dims) {
    ops.emplace_back(to_string(std::get<Partial>(step.from.dim_splits()[static_cast<size_t>(dim)]).op));
  }
  const bool are_alike = std::ranges::all_of(ops, [&](const std::string& op) { return op == ops.front(); });
  return are_alike ? std::string(to_string(reduce.op)) : join(ops, ", ");
}

/// "all_reduce" where every rank ends with all that it has reduced with others.
std::string_view reduce_name(const Step& step, const Reduce& reduce) {
  const bool whole = std::ranges::all_of(reduce.mesh_dims, [&](int64_t dim) {
    return std::holds_alternative<Replicate>(step.to.dim_splits()[static_cast<size_t>(dim)]);
  });
  return whole ? "all_reduce" : "reduce_scatter";
}

std::string mesh_text(const DeviceMesh& mesh) {
  return str_cat(tuple_text(mesh.shape()), " ", tuple_text(mesh.names()));
}

}  // namespace

bool is_local(const Step& step) {
  return std::visit(Overloaded{
                        [](const Move& move) { return move.pattern == MovePattern::kLocal; },
                        [&](const Reduce& reduce) {
                          return std::ranges::all_of(reduce.mesh_dims,
                                                     [&](int64_t dim) { return step.from.mesh().size(dim) == 1; });
                        },
                    },
                    step.action);
}

int64_t rounds(const Plan& plan) {
  return std::ranges::count_if(plan.steps, [](const Step& step) { return !is_local(step); });
}

std::string action_text(const Step& step) {
  return std::visit(Overloaded{
                        [](const Move& move) { return std::string(pattern_name(move.pattern)); },
                        [&](const Reduce& reduce) {
                          std::vector<std::string> names;
                          for (const int64_t dim : reduce.mesh_dims) {
                            names.push_back(str_cat("'", step.from.mesh().names()[static_cast<size_t>(dim)], "'"));
                          }
                          return str_cat(reduce_name(step, reduce), "(", ops_text(step, reduce), ") over ",
                                         join(names, ", "));
                        },
                    },
                    step.action);
}

std::string to_string(const Plan& plan) {
  std::ostringstream out;
  out << "redistribute " << tuple_text(plan.source.shape()) << " on mesh " << mesh_text(plan.source.mesh()) << "\n";
  out << "  from " << short_text(plan.source) << "\n";
  out << "  to   " << short_text(plan.target);
  if (!(plan.source.mesh() == plan.target.mesh())) out << " on mesh " << mesh_text(plan.target.mesh());
  out << "\n";
  if (plan.steps.empty()) out << "  nothing to do\n";
  for (size_t i = 0; i < plan.steps.size(); ++i) {
    out << "  " << i + 1 << ". " << action_text(plan.steps[i]) << ": " << short_text(plan.steps[i].from) << " -> "
        << short_text(plan.steps[i].to) << "\n";
  }
  return std::move(out).str();
}

}  // namespace hyper_parallel
