#include "tools/plan_json.h"

namespace ks
{

Json ladder_json(const Plan& plan)
{
    Json ladder = Json::array();
    for (size_t i = 0; i < plan.rungs.size(); i++) {
        const PlanRung& rung = plan.rungs[i];
        if (!rung.slots) continue;
        ladder.push(Json::object({{"rung", i},
                                  {"recipe", rung.recipe_text},
                                  {"tokens", rung.slots},
                                  {"slots", rung.slots}}));
    }
    return ladder;
}

} // namespace ks
