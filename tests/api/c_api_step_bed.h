// A model with several sessions by the C API.
#pragma once

#include "tests/api/c_api_bed.h"

namespace ks
{

// On the device on which texts have the same bits in company as alone.
struct StepModel : ApiModel {
    explicit StepModel(const char* name) : ApiModel(name) { options.device = "cpu"; }
};

struct CloseModel {
    void operator()(ks_model* model) const { ks_model_close(model); }
};

// A model and its sessions.
struct Company {
    std::unique_ptr<ks_model, CloseModel> model;
    std::vector<Handle> sessions;
    char error[400] = "";

    Company(StepModel& file, const char* recipe, uint32_t n)
    {
        file.options.recipe = recipe;
        file.options.n_sessions = n;
        ks_model* opened = nullptr;
        const int code = ks_model_open(&file.options, &opened, error, sizeof error);
        REQUIRE_MESSAGE(code == KS_OK, error);
        model.reset(opened);
        for (uint32_t i = 0; i < n; i++) sessions.push_back(open());
        file.options.n_sessions = 1;
    }
    Handle open()
    {
        ks_session* session = nullptr;
        const int code = ks_session_open(model.get(), &session, error, sizeof error);
        REQUIRE_MESSAGE(code == KS_OK, error);
        return Handle(session);
    }
    int step(std::vector<ks_step_input>& inputs)
    {
        return ks_step(model.get(), inputs.data(), inputs.size(), error, sizeof error);
    }
    // Steps until every input is read.
    void read(std::vector<ks_step_input> inputs)
    {
        while (!inputs.empty()) {
            REQUIRE(step(inputs) == KS_OK);
            size_t kept = 0;
            for (ks_step_input& in : inputs) {
                REQUIRE(in.code == KS_OK);
                in.ids += in.n_read;
                in.n -= in.n_read;
                if (in.n) inputs[kept++] = in;
            }
            inputs.resize(kept);
        }
    }
};

inline ks_step_input input(const Handle& session, const std::vector<uint32_t>& ids)
{
    return {session.get(), ids.data(), ids.size(), 99, 99};
}

} // namespace ks
