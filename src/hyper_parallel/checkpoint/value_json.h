#pragma once

// Values as JSON, as metadata_codec.h describes it.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "hyper_parallel/checkpoint/value.h"

namespace hyper_parallel {

/// Appends a JSON string, quotes included. Throws kInvalidArgument for text that is not UTF-8.
void append_json_text(std::string& out, std::string_view text);

/// Appends the value. Throws kInvalidArgument for text that is not UTF-8 and for values nested deeper than
/// kMaxValueDepth.
void append_json_value(std::string& out, const Value& value);

/// Builds a Value of the events of its JSON text, one call for each. Keeps its nesting in a vector: no recursion.
///
/// Every call throws kDataLoss, the message starts with the owner, for an event that no value has there.
class ValueBuilder {
 public:
  /// Begins a new value. `owner` starts messages.
  void begin(std::string owner);

  /// Whether the value is complete, so that no further event belongs to it.
  bool is_complete() const { return complete_; }
  /// The complete value.
  Value take() { return std::move(result_); }

  void add_object();
  void add_key(std::string_view key);
  void end_object();
  void add_array();
  void end_array();
  void add_text(std::string& text);
  /// None, a bool, an integer or a float.
  void add_number(Value value);

  /// Throws kDataLoss for something that was found where the value cannot have it.
  [[noreturn]] void refuse(std::string_view found) const;

 private:
  enum class Tag { kNone, kInt, kFloat, kComplex, kBytes, kTuple, kDict };
  enum class Kind {
    kObject,   // of one key, a tag, and its content
    kList,     // a list
    kTuple,    // the list of a tuple's items
    kDict,     // the list of a dict's pairs
    kPair,     // one of them
    kComplex,  // the list of two floats
  };
  struct Frame {
    Kind kind;
    Tag tag = Tag::kNone;      // of an object
    std::vector<Value> items;  // of an object: its content, when it is known
    ValueDict dict;            // of kDict
  };

  static Tag find_tag(std::string_view key);
  static std::string_view rule_of(Tag tag);
  void accept(Value value);
  void fill_object(Value content);
  void add_pair(std::vector<Value>& items);
  Value complex_of(const std::vector<Value>& items) const;
  Value tagged_text(Tag tag, std::string& text) const;
  void push(Kind kind);

  std::string owner_;
  std::vector<Frame> frames_;
  int depth_ = 0;
  Value result_;
  bool complete_ = false;
};

}  // namespace hyper_parallel
