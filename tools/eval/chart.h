// Charts of `report` as inline SVG. They need no script and no other file.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace ks
{

std::string html_text(const std::string& text); // with &, <, > and " escaped
std::string rounded(double number, int digits);

struct ChartPoint {
    double x, y, low, high; // low and high: the interval of y
    uint32_t series;
};

struct Chart {
    std::string x_title, y_title;
    bool percent = true;             // y is a share of 1; else y is logarithmic, at least kLeastY
    std::vector<std::string> series; // the legend shows those with points, numbered from 1
    std::vector<ChartPoint> points;

    static constexpr double kLeastY = 1e-4;
    std::string svg() const; // x is logarithmic
};

struct HeatMap {
    std::string title;
    std::vector<std::string> rows, columns;
    std::vector<std::vector<double>> values; // 0 to 1; negative: not measured

    std::string svg() const;
};

// Horizontal bars. Each has parts one after the other, which end at `end`.
struct BarChart {
    struct Part {
        double end;
        uint32_t series;
    };
    struct Bar {
        std::string label;
        std::vector<Part> parts;
    };
    std::string x_title;
    double most = 1;                 // the end of the x axis, which is linear
    std::vector<std::string> series; // the legend
    std::vector<Bar> bars;

    std::string svg() const;
};

} // namespace ks
