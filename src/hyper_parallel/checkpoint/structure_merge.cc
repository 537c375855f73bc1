#include "hyper_parallel/checkpoint/structure_merge.h"

#include <string>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "hyper_parallel/base/error.h"
#include "hyper_parallel/checkpoint/tensor_name.h"

namespace hyper_parallel {

struct StructureMerge::Node {
  struct Child {
    const Value* key = nullptr;  // null in lists and tuples
    std::unique_ptr<Node> node;
  };

  const Value* value = nullptr;  // as the rank has it that was first to have this node
  int64_t rank = 0;
  std::vector<Child> children;
  std::unordered_map<std::string, size_t> by_key;  // of a dict, as far as `indexed`
  size_t indexed = 0;
};

namespace {

// Different for different keys, of unlike types too.
std::string key_text(const Value& key) { return str_cat(key.variant().index(), ":", to_string(key)); }

std::string describe(const Value& value) {
  if (std::holds_alternative<ValueDict>(value.variant())) return "a dict";
  if (std::holds_alternative<ValueList>(value.variant())) return "a list";
  if (std::holds_alternative<ValueTuple>(value.variant())) return "a tuple";
  if (const auto* name = std::get_if<std::string>(&value.variant())) return "the entry " + quoted_name(*name);
  return "a flat dict of names";
}

// Where in the state dict a merge stands: the keys on the way down, for messages.
class Path {
 public:
  class Step {
   public:
    Step(Path& path, std::string key) : path_(path) { path_.keys_.push_back(std::move(key)); }
    ~Step() { path_.keys_.pop_back(); }
    Step(const Step&) = delete;
    Step& operator=(const Step&) = delete;

   private:
    Path& path_;
  };

  int depth() const { return static_cast<int>(keys_.size()); }
  std::string text() const { return keys_.empty() ? "the whole" : quoted_name(join(keys_, ".")); }

 private:
  std::vector<std::string> keys_;
};

std::string step_text(const Value& key) {
  const auto* text = std::get_if<std::string>(&key.variant());
  return text != nullptr ? *text : to_string(key);
}

// The items of a list or tuple; null for anything else.
const std::vector<Value>* sequence_items(const Value& value) {
  if (const auto* list = std::get_if<ValueList>(&value.variant())) return &list->items;
  if (const auto* tuple = std::get_if<ValueTuple>(&value.variant())) return &tuple->items;
  return nullptr;
}

template <typename Node>
class Merger {
 public:
  explicit Merger(int64_t rank) : rank_(rank) {}

  void merge(std::unique_ptr<Node>& node, const Value& value) {
    HP_CHECK(path_.depth() < kMaxValueDepth, kInvalidArgument, "the state dict of rank ", rank_,
             " is nested deeper than ", kMaxValueDepth, " levels");
    if (node == nullptr) {
      node = std::make_unique<Node>();
      node->value = &value;
      node->rank = rank_;
    }
    check_fit(*node, value);
    if (const auto* dict = std::get_if<ValueDict>(&value.variant())) {
      merge_dict(*node, *dict);
    } else if (const auto* items = sequence_items(value)) {
      merge_items(*node, *items);
    }
  }

 private:
  void check_fit(const Node& node, const Value& value) const {
    const bool is_leaf = std::holds_alternative<std::string>(value.variant());
    const bool fits = node.value->variant().index() == value.variant().index() && (!is_leaf || *node.value == value);
    HP_CHECK(fits, kInvalidArgument, "the state dicts of rank ", node.rank, " and rank ", rank_,
             " do not fit together: ", path_.text(), " is ", describe(*node.value), " on rank ", node.rank, " but ",
             describe(value), " on rank ", rank_);
  }

  void merge_dict(Node& node, const ValueDict& dict) {
    for (size_t i = 0; i < dict.items.size(); ++i) {
      const auto& [key, item] = dict.items[i];
      const typename Path::Step step(path_, step_text(key));
      merge(node.children[child_of(node, key, i)].node, item);
    }
  }

  void merge_items(Node& node, const std::vector<Value>& items) {
    if (node.children.size() < items.size()) node.children.resize(items.size());
    for (size_t i = 0; i < items.size(); ++i) {
      const typename Path::Step step(path_, std::to_string(i));
      merge(node.children[i].node, items[i]);
    }
  }

  // The number of the child with that key, made if there is none. Most ranks have their keys in one order: the child
  // with the number `guess` is tried first.
  static size_t child_of(Node& node, const Value& key, size_t guess) {
    if (guess < node.children.size() && *node.children[guess].key == key) return guess;
    for (; node.indexed < node.children.size(); ++node.indexed) {
      node.by_key.emplace(key_text(*node.children[node.indexed].key), node.indexed);
    }
    const auto [place, is_new] = node.by_key.emplace(key_text(key), node.children.size());
    if (is_new) {
      node.children.push_back({&key, nullptr});
      ++node.indexed;
    }
    return place->second;
  }

  int64_t rank_;
  Path path_;
};

template <typename Node>
Value to_value(const Node& node) {
  if (std::holds_alternative<ValueDict>(node.value->variant())) {
    ValueDict dict;
    for (const auto& child : node.children) dict.items.emplace_back(*child.key, to_value(*child.node));
    return dict;
  }
  if (sequence_items(*node.value) == nullptr) return *node.value;
  std::vector<Value> items;
  for (const auto& child : node.children) items.push_back(to_value(*child.node));
  if (std::holds_alternative<ValueTuple>(node.value->variant())) return ValueTuple{std::move(items)};
  return ValueList{std::move(items)};
}

// Throws unless every leaf is text.
void check_leaves(int64_t rank, const Value& value, int depth) {
  HP_CHECK(depth <= kMaxValueDepth, kInvalidArgument, "the state dict of rank ", rank, " is nested deeper than ",
           kMaxValueDepth, " levels");
  if (const auto* dict = std::get_if<ValueDict>(&value.variant())) {
    for (const auto& [key, item] : dict->items) check_leaves(rank, item, depth + 1);
  } else if (const auto* items = sequence_items(value)) {
    for (const Value& item : *items) check_leaves(rank, item, depth + 1);
  } else {
    HP_CHECK(std::holds_alternative<std::string>(value.variant()), kInvalidArgument, "the structure of rank ", rank,
             "'s state dict holds ", to_string(value), "; its leaves must be the names of entries");
  }
}

}  // namespace

StructureMerge::StructureMerge() = default;
StructureMerge::~StructureMerge() = default;

void StructureMerge::add(int64_t rank, const Value& structure) {
  if (latest_ != nullptr && *latest_ == structure) return;
  if (!structure.is_none()) check_leaves(rank, structure, 0);
  latest_ = &structure;
  if (first_ == nullptr) {
    first_ = &structure;
    first_rank_ = rank;
    return;
  }
  if (root_ == nullptr) Merger<Node>(first_rank_).merge(root_, *first_);
  Merger<Node>(rank).merge(root_, structure);
}

Value StructureMerge::result() const {
  if (first_ == nullptr) return {};
  return root_ == nullptr ? *first_ : to_value(*root_);
}

}  // namespace hyper_parallel
