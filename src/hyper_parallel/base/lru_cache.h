#pragma once

// LruCache: results of a pure function already computed, keyed by its whole argument, bounded, least recently used out
// first.

#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <utility>

namespace hyper_parallel {

template <typename Key, typename Value, typename Hash = std::hash<Key>>
class LruCache {
 public:
  /// Keeps at most `capacity` values; 0 keeps none, and every call makes anew.
  explicit LruCache(size_t capacity) : capacity_(capacity) {}

  /// The value of `key`, which is `make()` where none is kept. What `make` throws passes, and nothing is kept then.
  /// Safe to call from several threads; `make` runs outside the lock: two threads may make the same value, which costs
  /// time but not truth.
  template <typename Make>
  std::shared_ptr<const Value> get(Key key, const Make& make) {
    if (std::shared_ptr<const Value> kept = find(key)) return kept;
    auto value = std::make_shared<const Value>(make());
    keep(std::move(key), value);
    return value;
  }

  size_t size() const {
    const std::lock_guard lock(mutex_);
    return entries_.size();
  }
  int64_t hits() const {
    const std::lock_guard lock(mutex_);
    return hits_;
  }
  int64_t misses() const {
    const std::lock_guard lock(mutex_);
    return misses_;
  }

 private:
  struct Entry {
    const Key* key;  // in the index
    std::shared_ptr<const Value> value;
  };
  using Entries = std::list<Entry>;  // most recently used first

  std::shared_ptr<const Value> find(const Key& key) {
    const std::lock_guard lock(mutex_);
    const auto found = index_.find(key);
    if (found == index_.end()) {
      ++misses_;
      return nullptr;
    }
    ++hits_;
    entries_.splice(entries_.begin(), entries_, found->second);
    return found->second->value;
  }

  void keep(Key key, std::shared_ptr<const Value> value) {
    const std::lock_guard lock(mutex_);
    if (capacity_ == 0) return;
    const auto [place, is_new] = index_.try_emplace(std::move(key));
    if (!is_new) return;
    entries_.push_front({&place->first, std::move(value)});
    place->second = entries_.begin();
    if (entries_.size() <= capacity_) return;
    index_.erase(index_.find(*entries_.back().key));
    entries_.pop_back();
  }

  size_t capacity_;
  mutable std::mutex mutex_;
  Entries entries_;
  std::unordered_map<Key, typename Entries::iterator, Hash> index_;
  int64_t hits_ = 0;
  int64_t misses_ = 0;
};

}  // namespace hyper_parallel
