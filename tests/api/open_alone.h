// A session by the C API whose model nothing else uses.
#pragma once

#include "runtime/api/knapsack.h"

namespace ks
{

inline int open_alone(const ks_model_options* options, ks_session** out, char* error,
                      size_t error_bytes)
{
    ks_model* model = nullptr;
    *out = nullptr;
    int code = ks_model_open(options, &model, error, error_bytes);
    if (code == KS_OK) code = ks_session_open(model, out, error, error_bytes);
    ks_model_close(model); // the session keeps it
    return code;
}

} // namespace ks
