#include "hyper_parallel/checkpoint/random_word.h"

#include <sys/random.h>

#include <cerrno>

#include "hyper_parallel/base/error.h"
#include "hyper_parallel/checkpoint/file_descriptor.h"

namespace hyper_parallel {

uint64_t random_word() {
  uint64_t word = 0;
  // Requests of up to 256 bytes are never cut short once the generator is ready.
  ssize_t count = 0;
  do {
    count = ::getrandom(&word, sizeof word, 0);
  } while (count < 0 && errno == EINTR);
  HP_CHECK(count == sizeof word, kInternal, "the system has no random numbers: ", errno_text(errno));
  return word;
}

}  // namespace hyper_parallel
