#pragma once

// Argument: what a caller hands to an operation that is called by name, and Keyword: the same with a name.
//
// An Argument refers to the tensors and texts it was made from and owns nothing but numbers and lists: it lives for one
// call.
//
//   call("add", {x, 2.0}, {{"alpha", 3}})
//   call("_foreach_add_", {Argument::list(parameters), Argument::list(gradients)})

#include <ATen/core/Tensor.h>

#include <concepts>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <variant>
#include <vector>

#include "hyper_parallel/torch/dtensor.h"

namespace hyper_parallel {

class Argument {
 public:
  using List = std::vector<Argument>;

  /// None.
  Argument() = default;
  Argument(std::nullopt_t) {}
  Argument(const DTensor& tensor) : value_(&tensor) {}
  Argument(const at::Tensor& tensor) : value_(&tensor) {}
  Argument(const at::Scalar& number) : value_(number) {}
  template <typename T>
    requires std::is_arithmetic_v<T>
  Argument(T number) : value_(scalar_of(number)) {}
  Argument(at::ScalarType dtype) : value_(dtype) {}
  Argument(at::MemoryFormat format) : value_(format) {}
  Argument(std::string_view text) : value_(text) {}
  Argument(const char* text) : value_(std::string_view(text)) {}
  Argument(List items) : value_(std::move(items)) {}

  /// A list that refers to the elements of `items`.
  template <typename T>
  static Argument list(const std::vector<T>& items) {
    return Argument(List(items.begin(), items.end()));
  }

  /// Whether it is a DTensor or a plain tensor.
  bool is_tensor() const { return dtensor() != nullptr || plain_tensor() != nullptr; }
  bool is_none() const { return std::holds_alternative<std::monostate>(value_); }
  /// The value if it is of that kind, else null.
  const DTensor* dtensor() const { return pointee<DTensor>(); }
  const at::Tensor* plain_tensor() const { return pointee<at::Tensor>(); }
  const at::Scalar* number() const { return std::get_if<at::Scalar>(&value_); }
  const at::ScalarType* dtype() const { return std::get_if<at::ScalarType>(&value_); }
  const at::MemoryFormat* memory_format() const { return std::get_if<at::MemoryFormat>(&value_); }
  const std::string_view* text() const { return std::get_if<std::string_view>(&value_); }
  const List* items() const { return std::get_if<List>(&value_); }

  /// What it is, for messages: "a DTensor of shape (6, 4)", "a plain tensor of shape (3,)", "the number 2", "None".
  std::string describe() const;

 private:
  template <typename T>
  const T* pointee() const {
    const T* const* held = std::get_if<const T*>(&value_);
    return held == nullptr ? nullptr : *held;
  }

  template <typename T>
  static at::Scalar scalar_of(T number) {
    if constexpr (std::same_as<T, bool>)
      return at::Scalar(number);
    else if constexpr (std::is_integral_v<T>)
      return at::Scalar(static_cast<int64_t>(number));
    else
      return at::Scalar(static_cast<double>(number));
  }

  std::variant<std::monostate, const DTensor*, const at::Tensor*, at::Scalar, at::ScalarType, at::MemoryFormat,
               std::string_view, List>
      value_;
};

struct Keyword {
  std::string_view name;
  Argument value;
};

}  // namespace hyper_parallel
