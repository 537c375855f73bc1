// A library to preload: counts the calls by which a program changes a directory, and makes one of them go wrong.
//
// Counted are open, creat, write, fsync, rename, unlink, mkdir and truncate in all their forms, where they touch the
// directory, something in it, or its parent; between `fault_shim_begin` and `fault_shim_end`, which the program finds
// by dlsym. Environment: HP_FAULT_CALL is the number of the call, from 1; HP_FAULT_ACTION is what happens to it:
//
//   kill_before, kill_after   the process is killed
//   ENOSPC, EIO, EINTR        the call fails
//   full                      this call and all later ones that need space fail with ENOSPC
//   short                     a write takes half of its bytes, at least one
//   nothing                   a write takes no byte and does not fail
//   stop                      the process is stopped (SIGSTOP)

#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

namespace {

enum class Action { kNone, kKillBefore, kKillAfter, kNoSpace, kIo, kInterrupt, kFull, kShort, kNothing, kStop };

struct State {
  bool active = false;
  std::string directory;
  std::string parent;
  std::string calls;  // names, one a line
  int64_t count = 0;
  int64_t number = 0;
  Action action = Action::kNone;
};

State& state() {
  static State instance;
  return instance;
}

Action parse_action(std::string_view text) {
  if (text == "kill_before") return Action::kKillBefore;
  if (text == "kill_after") return Action::kKillAfter;
  if (text == "ENOSPC") return Action::kNoSpace;
  if (text == "EIO") return Action::kIo;
  if (text == "EINTR") return Action::kInterrupt;
  if (text == "full") return Action::kFull;
  if (text == "short") return Action::kShort;
  if (text == "nothing") return Action::kNothing;
  if (text == "stop") return Action::kStop;
  return Action::kNone;
}

// The function of that name behind this library.
template <typename Function>
Function* next(const char* name) {
  return reinterpret_cast<Function*>(::dlsym(RTLD_NEXT, name));
}

std::string link_target(const std::string& link) {
  char path[4096];
  const ssize_t size = ::readlink(link.c_str(), path, sizeof path);
  return size < 0 ? "" : std::string(path, static_cast<size_t>(size));
}

std::string path_of(int descriptor) { return link_target("/proc/self/fd/" + std::to_string(descriptor)); }

std::string path_at(int directory, const char* path) {
  if (path[0] == '/') return path;
  return (directory == AT_FDCWD ? link_target("/proc/self/cwd") : path_of(directory)) + "/" + path;
}

bool touches(const std::string& path) {
  const State& s = state();
  return path == s.directory || path == s.parent || path.starts_with(s.directory + "/");
}

// What is to happen to a call.
enum class Fate { kPass, kFail, kShort, kNothing, kDieAfter };

enum class Needs { kSpace, kNothing };

// Counts a call that touches the directory, and kills or stops the process if it is to happen before the call.
Fate fate_of(const char* name, Needs needs) {
  State& s = state();
  s.calls += std::string(name) + "\n";
  ++s.count;
  if (s.action == Action::kFull && s.number > 0 && s.count >= s.number && needs == Needs::kSpace) {
    errno = ENOSPC;
    return Fate::kFail;
  }
  if (s.count != s.number) return Fate::kPass;
  switch (s.action) {
    case Action::kKillBefore:
      ::kill(::getpid(), SIGKILL);
      return Fate::kPass;
    case Action::kStop:
      ::kill(::getpid(), SIGSTOP);
      return Fate::kPass;
    case Action::kKillAfter:
      return Fate::kDieAfter;
    case Action::kNoSpace:
      errno = ENOSPC;
      return Fate::kFail;
    case Action::kIo:
      errno = EIO;
      return Fate::kFail;
    case Action::kInterrupt:
      errno = EINTR;
      return Fate::kFail;
    case Action::kShort:
      return Fate::kShort;
    case Action::kNothing:
      return Fate::kNothing;
    case Action::kFull:
    case Action::kNone:
      return Fate::kPass;
  }
  return Fate::kPass;
}

template <typename Result, typename Call>
Result carry_out(Fate fate, const Call& call) {
  if (fate == Fate::kFail) return Result{-1};
  const Result result = call();
  if (fate == Fate::kDieAfter) ::kill(::getpid(), SIGKILL);
  return result;
}

// A call that is given by a path or descriptor: `where()` says which, and is asked only between the marks.
template <typename Result, typename Where, typename Call>
Result guarded(const char* name, Needs needs, const Where& where, const Call& call) {
  if (!state().active || !touches(where())) return call();
  return carry_out<Result>(fate_of(name, needs), call);
}

// The same for writes, which may be short or take nothing: `call(n)` writes n bytes.
template <typename Call>
ssize_t guarded_write(const char* name, int descriptor, size_t count, const Call& call) {
  if (!state().active || !touches(path_of(descriptor))) return call(count);
  const Fate fate = fate_of(name, Needs::kSpace);
  if (fate == Fate::kNothing) return 0;
  const size_t some = fate == Fate::kShort ? std::max<size_t>(count / 2, 1) : count;
  return carry_out<ssize_t>(fate, [&] { return call(std::min(some, count)); });
}

Needs needs_of_open(int flags) { return (flags & O_CREAT) != 0 ? Needs::kSpace : Needs::kNothing; }

mode_t mode_argument(int flags, va_list arguments) {
  return (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(arguments, mode_t) : 0;
}

using OpenAt = int(int, const char*, int, ...);

int open_at(const char* name, int directory, const char* path, int flags, mode_t mode) {
  static OpenAt* const real = next<OpenAt>("openat");
  return guarded<int>(
      name, needs_of_open(flags), [&] { return path_at(directory, path); },
      [&] { return real(directory, path, flags, mode); });
}

}  // namespace

extern "C" {

// Starts counting calls that touch `directory`, an absolute path without symbolic links.
void fault_shim_begin(const char* directory) {
  State& s = state();
  s.directory = directory;
  s.parent = s.directory.substr(0, s.directory.rfind('/'));
  const char* number = std::getenv("HP_FAULT_CALL");
  const char* action = std::getenv("HP_FAULT_ACTION");
  s.number = number == nullptr ? 0 : std::atoll(number);
  s.action = parse_action(action == nullptr ? "" : action);
  s.active = true;
}

// Ends it. Returns the names of the calls, one a line.
const char* fault_shim_end() {
  state().active = false;
  return state().calls.c_str();
}

int open(const char* path, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = mode_argument(flags, arguments);
  va_end(arguments);
  return open_at("open", AT_FDCWD, path, flags, mode);
}

int openat(int directory, const char* path, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = mode_argument(flags, arguments);
  va_end(arguments);
  return open_at("openat", directory, path, flags, mode);
}

int creat(const char* path, mode_t mode) {
  return open_at("creat", AT_FDCWD, path, O_CREAT | O_WRONLY | O_TRUNC, mode);
}

ssize_t write(int descriptor, const void* bytes, size_t count) {
  static auto* const real = next<decltype(write)>("write");
  return guarded_write("write", descriptor, count, [&](size_t n) { return real(descriptor, bytes, n); });
}

ssize_t pwrite(int descriptor, const void* bytes, size_t count, off_t offset) {
  static auto* const real = next<decltype(pwrite)>("pwrite");
  return guarded_write("pwrite", descriptor, count, [&](size_t n) { return real(descriptor, bytes, n, offset); });
}

ssize_t writev(int descriptor, const iovec* pieces, int count) {
  static auto* const real = next<decltype(writev)>("writev");
  return guarded_write("writev", descriptor, static_cast<size_t>(count),
                       [&](size_t n) { return real(descriptor, pieces, static_cast<int>(n)); });
}

int fsync(int descriptor) {
  static auto* const real = next<decltype(fsync)>("fsync");
  return guarded<int>("fsync", Needs::kSpace, [&] { return path_of(descriptor); }, [&] { return real(descriptor); });
}

int fdatasync(int descriptor) {
  static auto* const real = next<decltype(fdatasync)>("fdatasync");
  return guarded<int>(
      "fdatasync", Needs::kSpace, [&] { return path_of(descriptor); }, [&] { return real(descriptor); });
}

int rename(const char* from, const char* to) {
  static auto* const real = next<decltype(rename)>("rename");
  return guarded<int>("rename", Needs::kSpace, [&] { return path_at(AT_FDCWD, to); }, [&] { return real(from, to); });
}

int renameat(int from_directory, const char* from, int to_directory, const char* to) {
  static auto* const real = next<decltype(renameat)>("renameat");
  return guarded<int>(
      "renameat", Needs::kSpace, [&] { return path_at(to_directory, to); },
      [&] { return real(from_directory, from, to_directory, to); });
}

int unlink(const char* path) {
  static auto* const real = next<decltype(unlink)>("unlink");
  return guarded<int>("unlink", Needs::kNothing, [&] { return path_at(AT_FDCWD, path); }, [&] { return real(path); });
}

int unlinkat(int directory, const char* path, int flags) {
  static auto* const real = next<decltype(unlinkat)>("unlinkat");
  return guarded<int>(
      "unlinkat", Needs::kNothing, [&] { return path_at(directory, path); },
      [&] { return real(directory, path, flags); });
}

int mkdir(const char* path, mode_t mode) {
  static auto* const real = next<decltype(mkdir)>("mkdir");
  return guarded<int>(
      "mkdir", Needs::kSpace, [&] { return path_at(AT_FDCWD, path); }, [&] { return real(path, mode); });
}

int mkdirat(int directory, const char* path, mode_t mode) {
  static auto* const real = next<decltype(mkdirat)>("mkdirat");
  return guarded<int>(
      "mkdirat", Needs::kSpace, [&] { return path_at(directory, path); }, [&] { return real(directory, path, mode); });
}

int truncate(const char* path, off_t size) {
  static auto* const real = next<decltype(truncate)>("truncate");
  return guarded<int>(
      "truncate", Needs::kNothing, [&] { return path_at(AT_FDCWD, path); }, [&] { return real(path, size); });
}

int ftruncate(int descriptor, off_t size) {
  static auto* const real = next<decltype(ftruncate)>("ftruncate");
  return guarded<int>(
      "ftruncate", Needs::kNothing, [&] { return path_of(descriptor); }, [&] { return real(descriptor, size); });
}

// The same functions under the names that programs with 64-bit file offsets may use.
int open64(const char* path, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = mode_argument(flags, arguments);
  va_end(arguments);
  return open_at("open", AT_FDCWD, path, flags, mode);
}

int openat64(int directory, const char* path, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = mode_argument(flags, arguments);
  va_end(arguments);
  return open_at("openat", directory, path, flags, mode);
}

ssize_t pwrite64(int descriptor, const void* bytes, size_t count, off_t offset) {
  return pwrite(descriptor, bytes, count, offset);
}

int ftruncate64(int descriptor, off_t size) { return ftruncate(descriptor, size); }

}  // extern "C"
