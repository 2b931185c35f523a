#include "simulate/simgrid_oracle.h"

#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <simgrid/s4u.hpp>

namespace weft::testing {
namespace {

namespace sg4 = simgrid::s4u;

SimGridAnswer play(const std::vector<double>& bandwidths, const std::vector<SimGridFlow>& flows) {
  std::vector<std::string> words = {"oracle",
                                    "--cfg=network/model:CM02",
                                    "--cfg=network/TCP-gamma:0",
                                    "--cfg=network/latency-factor:1",
                                    "--cfg=network/bandwidth-factor:1",
                                    "--cfg=network/weight-S:0",
                                    "--cfg=network/crosstraffic:0",
                                    "--cfg=surf/precision:1e-15",
                                    "--cfg=maxmin/precision:1e-12",
                                    "--log=root.thresh:error"};
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  int argc = static_cast<int>(words.size());
  sg4::Engine engine(&argc, argv.data());

  sg4::NetZone* zone = sg4::create_full_zone("zone");
  std::vector<sg4::Link*> links;
  for (std::size_t i = 0; i < bandwidths.size(); ++i)
    links.push_back(zone->create_link("link" + std::to_string(i), bandwidths[i])->set_latency(0)->seal());
  // Each flow has a pair of hosts of its own: the fewest hosts with enough ordered pairs.
  std::size_t hosts = 2;
  while (hosts * (hosts - 1) < flows.size()) ++hosts;
  std::vector<sg4::Host*> host;
  for (std::size_t i = 0; i < hosts; ++i) host.push_back(zone->create_host("host" + std::to_string(i), 1e9)->seal());
  std::vector<std::pair<sg4::Host*, sg4::Host*>> ends;
  for (std::size_t i = 0; i < flows.size(); ++i) {
    const std::size_t from = i / (hosts - 1), other = i % (hosts - 1), to = other + (other >= from ? 1 : 0);
    std::vector<sg4::LinkInRoute> route;
    for (const std::uint32_t link : flows[i].links) route.emplace_back(links[link]);
    zone->add_route(host[from]->get_netpoint(), host[to]->get_netpoint(), nullptr, nullptr, route, false);
    ends.emplace_back(host[from], host[to]);
  }
  zone->seal();

  std::vector<std::size_t> order(flows.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) { return flows[a].start < flows[b].start; });

  SimGridAnswer answer;
  answer.finish.resize(flows.size());
  sg4::Actor::create("starter", host[0], [&] {
    std::vector<sg4::CommPtr> comms(flows.size());
    for (const std::size_t i : order) {
      sg4::this_actor::sleep_until(flows[i].start);
      comms[i] = sg4::Comm::sendto_async(ends[i].first, ends[i].second, flows[i].bytes);
    }
    for (const sg4::CommPtr& comm : comms) comm->wait();
    for (std::size_t i = 0; i < flows.size(); ++i) answer.finish[i] = comms[i]->get_finish_time();
  });
  const auto before = std::chrono::steady_clock::now();
  engine.run();
  answer.wall_seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - before).count();
  return answer;
}

void transfer(int descriptor, char* bytes, std::size_t size, bool write_them) {
  while (size > 0) {
    const ssize_t moved = write_them ? write(descriptor, bytes, size) : read(descriptor, bytes, size);
    if (moved <= 0) return;
    bytes += moved;
    size -= static_cast<std::size_t>(moved);
  }
}

}  // namespace

SimGridAnswer simgrid_finish_times(const std::vector<double>& bandwidths, const std::vector<SimGridFlow>& flows) {
  int ends[2];
  if (pipe(ends) != 0) std::abort();
  const pid_t child = fork();
  if (child == 0) {
    SimGridAnswer answer = play(bandwidths, flows);
    transfer(ends[1], reinterpret_cast<char*>(answer.finish.data()), flows.size() * sizeof(double), true);
    transfer(ends[1], reinterpret_cast<char*>(&answer.wall_seconds), sizeof(double), true);
    _exit(0);
  }
  close(ends[1]);
  SimGridAnswer answer{std::vector<double>(flows.size(), std::nan("")), 0};
  transfer(ends[0], reinterpret_cast<char*>(answer.finish.data()), flows.size() * sizeof(double), false);
  transfer(ends[0], reinterpret_cast<char*>(&answer.wall_seconds), sizeof(double), false);
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  return answer;
}

}  // namespace weft::testing
