// Parts of `check`, for those who change a workload piece by piece.
#pragma once

#include "simulate/workload.h"

namespace weft {

// `named_by` has an entry per link, and is scratch: whoever checks several works keeps it between them.
Status check_work(WorkId id, const Work& work, const IdVec<FlowLinkId, FlowLink>& links,
                  IdVec<FlowLinkId, WorkId>& named_by);
Status check_meeting(const Workload& workload, MeetingId id);
Status check_task(const Workload& workload, const Agent& agent, const Task& task);

}  // namespace weft
