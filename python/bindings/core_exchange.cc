#include "core_exchange.h"

#include <pybind11/typing.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core_conversions.h"
#include "core_override.h"
#include "hyper_parallel/checkpoint/exchange.h"

namespace hyper_parallel::bindings {
namespace {

namespace py = pybind11;

using BytesList = py::typing::List<py::bytes>;
using Gather = py::typing::Callable<BytesList(py::bytes)>;
using Scatter = py::typing::Callable<py::bytes(BytesList)>;

std::string text_of(py::handle message, std::string_view what) {
  HP_CHECK(PyBytes_Check(message.ptr()), kType, what, " is of type ", Py_TYPE(message.ptr())->tp_name,
           " but must be bytes");
  return std::string(py::reinterpret_borrow<py::bytes>(message));
}

/// An Exchange whose messages Python sends. Its methods are called without the GIL, in whatever thread saves or loads.
class MessageExchange final : public Exchange {
 public:
  MessageExchange(int64_t rank, int64_t size, const py::object& gather, const py::object& scatter)
      : rank_(rank), size_(size), gather_(keep_alive(gather)), scatter_(keep_alive(scatter)) {
    HP_CHECK(0 <= rank && rank < size, kInvalidArgument, "rank is ", rank, " but must be one of ", size, " ranks");
  }

  int64_t rank() const override { return rank_; }
  int64_t size() const override { return size_; }

  std::vector<std::string> gather(std::string message) override {
    return with_python([&] {
      const py::object found = call(gather_, py::bytes(message));
      std::vector<std::string> messages;
      if (!is_coordinator()) return messages;
      HP_CHECK(py::isinstance<py::sequence>(found), kType, "gather returned an object of type ",
               Py_TYPE(found.ptr())->tp_name, " but must return a list of bytes");
      for (const py::handle& each : found) messages.push_back(text_of(each, "a message that gather returned"));
      HP_CHECK(static_cast<int64_t>(messages.size()) == size_, kInvalidArgument, "gather returned ", messages.size(),
               " messages but the exchange has ", size_, " ranks");
      return messages;
    });
  }

  std::string scatter(std::vector<std::string> messages) override {
    HP_CHECK(!is_coordinator() || static_cast<int64_t>(messages.size()) == size_, kInvalidArgument, "scatter got ",
             messages.size(), " messages but the exchange has ", size_, " ranks");
    return with_python([&] {
      py::list sent;
      for (std::string& message : messages) sent.append(py::bytes(std::exchange(message, {})));
      return text_of(call(scatter_, sent), "what scatter returned");
    });
  }

 private:
  static py::object call(const std::shared_ptr<void>& function, const py::object& argument) {
    return py::handle(static_cast<PyObject*>(function.get()))(argument);
  }

  int64_t rank_;
  int64_t size_;
  std::shared_ptr<void> gather_;
  std::shared_ptr<void> scatter_;
};

}  // namespace

void bind_exchanges(py::module_& core) {
  py::class_<Exchange, std::shared_ptr<Exchange>>(core, "Exchange", "How the ranks of a save or load talk.")
      .def_property_readonly("rank", &Exchange::rank, "This rank among them; rank 0 is the coordinator.")
      .def_property_readonly("size", &Exchange::size, "How many ranks there are.");
  py::class_<SingleExchange, Exchange, std::shared_ptr<SingleExchange>>(core, "SingleExchange", "A job of one rank.")
      .def(py::init<>());
  py::class_<MessageExchange, Exchange, std::shared_ptr<MessageExchange>>(
      core, "MessageExchange", "An exchange over functions of Python that send messages.")
      .def(py::init([](const IntArgument& rank, const IntArgument& size, const Gather& gather, const Scatter& scatter) {
             return std::make_shared<MessageExchange>(integer_from_python(rank, "rank"),
                                                      integer_from_python(size, "size"), gather, scatter);
           }),
           py::arg("rank"), py::arg("size"), py::arg("gather"), py::arg("scatter"),
           R"(The functions are called in the thread that saves or loads, by all ranks in the same order.

Args:
    rank: This rank among those that talk.
    size: How many they are.
    gather: Takes this rank's message; returns those of all, by rank, on rank 0. What it returns elsewhere does not
        count.
    scatter: Takes on rank 0 a message for each rank, elsewhere an empty list; returns this rank's.

Raises:
    InvalidArgumentError: ``rank`` is none of them.)");
}

}  // namespace hyper_parallel::bindings
