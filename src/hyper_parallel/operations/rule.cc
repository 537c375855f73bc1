#include "hyper_parallel/operations/rule.h"

#include "hyper_parallel/base/text.h"

namespace hyper_parallel {
namespace {

// "a" .. "z", then "a1" ..
std::string axis_name(int axis) {
  if (axis == kNoAxis) return "-";
  const std::string letter(1, static_cast<char>('a' + axis % 26));
  return axis < 26 ? letter : str_cat(letter, axis / 26);
}

std::string operand_text(const Operand& operand) {
  std::vector<std::string> names;
  for (const int axis : operand.axes) names.push_back(axis_name(axis));
  return str_cat(operand.term == Operand::Term::kAddend ? "+" : "", tuple_text(operand.shape), ":", tuple_text(names));
}

std::string operands_text(const std::vector<Operand>& operands) {
  std::vector<std::string> texts;
  for (const Operand& operand : operands) texts.push_back(operand_text(operand));
  return join(texts, ", ");
}

}  // namespace

std::string to_string(const Rule& rule) {
  std::string text = str_cat(operands_text(rule.operands), " -> ", operands_text(rule.results));
  for (size_t axis = 0; axis < rule.axes.size(); ++axis) {
    const std::string name = axis_name(static_cast<int>(axis));
    if (rule.axes[axis].use == Axis::Use::kReduced)
      text += str_cat("; ", name, " reduced by ", to_string(rule.reduction));
    if (rule.axes[axis].cut == Axis::Cut::kEven)
      text += str_cat("; ", name, " cut evenly, ", rule.axes[axis].cells, " cells");
  }
  return text;
}

}  // namespace hyper_parallel
