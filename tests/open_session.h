// A session of a model that nothing else uses.
#pragma once

#include "runtime/api/session.h"

namespace ks
{

inline Result<std::unique_ptr<Session>> open_session(const ModelOptions& options)
{
    Result<std::shared_ptr<Model>> model = Model::open(options);
    if (!model.ok()) return model.status();
    return model.value()->open_session();
}

} // namespace ks
