// Who sends what to whom: the messages of every collective and transfer, found once from the layouts before and after.
//
// Collectives match by the order of issue within a group, so there is one group per (set of devices, stream), and all
// ranks make their groups in one order. The same order of instructions on every rank then makes collectives meet.
#pragma once

#include <optional>

#include "program/program.h"
#include "run/region.h"

namespace weft::runtime {

// A set of devices that meet on one stream.
struct GroupKey {
  std::vector<int> devices;  // ascending; a member's number is its place here
  int channel = 0;           // the stream; of transfers the sender's, and which way they go

  auto operator<=>(const GroupKey&) const = default;
};
// Of all devices, for what is said once a step; it is no stream's.
inline constexpr int kControlChannel = kStreams;

// Every group of more than one device that a program meets in, in one order for all ranks; the control group is last,
// also where it is of one.
std::vector<GroupKey> groups_of(const Program& program);
GroupKey group_of(const Instruction& instruction, const Communicate& communicate, const Mesh& mesh, int position);
GroupKey pair_of(const Program& program, TransferId transfer, int from, int to);

// A part of one buffer that goes to another member, or comes from one.
struct Part {
  int device = 0;          // the other
  std::size_t buffer = 0;  // of the instruction
  Runs runs;               // where it lies in this device's own part
  Shape shape;             // of the message: its elements in row-major order
};
// One that stays.
struct OwnPart {
  std::size_t buffer = 0;
  Runs from, to;
  Shape shape;
};

// What one device does in a collective or a transfer.
struct Exchange {
  std::vector<Part> sent, received;  // by device, then by buffer
  std::vector<OwnPart> own;
  bool adds = false;  // what is received is added, otherwise put in its place
};
// Of everything but all-reduces. `position`: the device's in the mesh.
Exchange exchange_of(const Program& program, const Communicate& communicate, const Mesh& mesh, int position);
// Of a transfer: the sender's half, the receiver's, or both.
Exchange exchange_of(const Program& program, const Transfer& transfer, int device);

}  // namespace weft::runtime
