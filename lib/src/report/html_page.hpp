// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

/// The fixed parts of the HTML report: style and the few lines of script of its filter box.
namespace mla::report {

inline constexpr std::string_view kHtmlStyle = R"(
:root { --ink: #1b1b1f; --dim: #5b5f66; --line: #d9dce1; --soft: #f4f5f7; --mark: #0072b2; }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 2rem 1.5rem 4rem; max-width: 76rem; color: var(--ink); background: #fff;
       font: 15px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.6rem; margin: 0 0 .25rem; }
h2 { font-size: 1.15rem; margin: 2.2rem 0 .5rem; border-bottom: 1px solid var(--line); padding-bottom: .2rem; }
p, li { max-width: 60rem; }
.dim { color: var(--dim); }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: .86rem; }
th, td { padding: .25rem .6rem; border-bottom: 1px solid var(--line); text-align: left; white-space: nowrap; }
th { background: var(--soft); position: sticky; top: 0; }
#points th, #points td { white-space: normal; padding: .2rem .35rem; font-size: .76rem; }
#points td:first-child { white-space: nowrap; }
#speedups td { white-space: normal; }
td.n, th.n { text-align: right; }
td.best { color: #fff; font-weight: 600; line-height: 1.25; }
td.best small { font-weight: 400; }
img { max-width: 100%; height: auto; border: 1px solid var(--line); }
input { font: inherit; padding: .3rem .5rem; width: 24rem; max-width: 100%; border: 1px solid var(--line); }
.bar { display: inline-block; height: .7rem; background: var(--mark); vertical-align: middle; }
pre { background: var(--soft); padding: .6rem .8rem; overflow-x: auto; font-size: .84rem; }
details { margin: .5rem 0; }
summary { cursor: pointer; color: var(--dim); }
@media print { input, summary { display: none; } }
)";

inline constexpr std::string_view kHtmlScript = R"(
const box = document.getElementById('filter');
const rows = document.querySelectorAll('#points tbody tr');
const shown = document.getElementById('shown');
box.addEventListener('input', () => {
  const words = box.value.toLowerCase().split(/\s+/).filter(Boolean);
  let count = 0;
  for (const row of rows) {
    const text = row.textContent.toLowerCase();
    const visible = words.every(word => text.includes(word));
    row.hidden = !visible;
    count += visible ? 1 : 0;
  }
  shown.textContent = count + ' of ' + rows.length + ' points';
});
)";

}  // namespace mla::report
