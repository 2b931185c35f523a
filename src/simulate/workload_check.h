// Parts of `check`, for incremental changes of a workload.
#pragma once

#include "simulate/workload.h"

namespace weft {

// `named_by` is scratch with an entry per link, reused between calls.
Status check_work(WorkId id, const Work& work, const IdVec<FlowLinkId, FlowLink>& links,
                  IdVec<FlowLinkId, WorkId>& named_by);
Status check_meeting(const Workload& workload, MeetingId id);
Status check_task(const Workload& workload, const Agent& agent, const Task& task);

}  // namespace weft
