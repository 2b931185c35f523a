// Where ranks find each other: a store of keys and values that all of them reach.
#pragma once

#include <memory>
#include <string>

#include "base/result.h"
#include "base/units.h"

namespace weft::runtime {

class Rendezvous {
 public:
  // Of threads of one process.
  static Rendezvous in_process();
  // Of processes: rank 0 serves it. An error where the port is taken or nobody answers in time.
  static Result<Rendezvous> over_tcp(const std::string& host, int port, int rank, int world, Seconds timeout);

  struct Store;
  const Store& store() const { return *store_; }

 private:
  explicit Rendezvous(std::shared_ptr<Store> store) : store_(std::move(store)) {}
  std::shared_ptr<Store> store_;
};

}  // namespace weft::runtime
