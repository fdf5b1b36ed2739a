// Models and sessions that tests open.
#pragma once

#include "runtime/api/session.h"

#include <doctest/doctest.h>

namespace ks
{

// A session of a model that nothing else uses.
inline Result<std::unique_ptr<Session>> open_session(const ModelOptions& options)
{
    Result<std::shared_ptr<Model>> model = Model::open(options);
    if (!model.ok()) return model.status();
    return model.value()->open_session();
}

inline std::shared_ptr<Model> open_model(const ModelOptions& options)
{
    Result<std::shared_ptr<Model>> model = Model::open(options);
    REQUIRE_MESSAGE(model.ok(), model.status().message());
    return model.value();
}

inline std::unique_ptr<Session> open_in(Model& model)
{
    Result<std::unique_ptr<Session>> session = model.open_session();
    REQUIRE_MESSAGE(session.ok(), session.status().message());
    return std::move(session.value());
}

inline std::vector<std::unique_ptr<Session>> open_sessions(Model& model, uint32_t n)
{
    std::vector<std::unique_ptr<Session>> sessions;
    for (uint32_t i = 0; i < n; i++) sessions.push_back(open_in(model));
    return sessions;
}

} // namespace ks
