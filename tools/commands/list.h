// All commands in the order of --help. tools/commands/NAME.cpp defines command_NAME.
#pragma once

// clang-format off
#define KS_COMMANDS(X) \
    X(chat)            \
    X(serve)           \
    X(run)             \
    X(score)           \
    X(plan)            \
    X(inspect)         \
    X(tokenize)        \
    X(render)          \
    X(devices)         \
    X(bench)           \
    X(eval)            \
    X(report)
// clang-format on
