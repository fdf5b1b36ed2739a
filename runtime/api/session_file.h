#pragma once

#include "runtime/api/session.h"
#include "runtime/model/gguf.h"

namespace ks
{

// Of the header and of some bytes of every tensor: another number for another model, without reading the file.
Result<uint64_t> model_fingerprint(const Gguf& gguf);

} // namespace ks
