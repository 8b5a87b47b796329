"""The style sheet of our self-contained pages: light and dark, narrow and wide, on paper."""

from __future__ import annotations

STYLE = """
:root{--paper:#fff;--ink:#1c2026;--soft:#5a6370;--line:#d5dae1;--tint:#f4f6f8;--pass:#16703c;--fail:#b3261e;
--inconclusive:#8a5a00;--loss:#b3261e1f}
@media (prefers-color-scheme:dark){:root{--paper:#14171b;--ink:#e8eaed;--soft:#a6afba;--line:#3a424c;--tint:#1d2228;
--pass:#63d391;--fail:#ff8a80;--inconclusive:#f0b84a;--loss:#ff8a8026}}
*{box-sizing:border-box}
body{margin:0;background:var(--paper);color:var(--ink);font:16px/1.5 system-ui,sans-serif}
main{max-width:64rem;margin:0 auto;padding:1rem}
h1{font-size:1.4rem;margin:.4rem 0;overflow-wrap:anywhere}
h2{font-size:1.1rem;margin:2rem 0 .5rem}
ul{padding-left:1.2rem;margin:.5rem 0}
dt{font-weight:600;margin-top:.6rem}
dd{margin:0 0 0 1rem}
.lead{font-size:1.05rem;max-width:48rem}
.badge{display:inline-block;margin:0;padding:.1rem .7rem;border:2px solid;border-radius:1rem;font-weight:700;
text-transform:uppercase;letter-spacing:.05em}
.pass{color:var(--pass)}.fail{color:var(--fail)}.inconclusive{color:var(--inconclusive)}
figure{margin:0}
figcaption{color:var(--soft);font-size:.85rem;max-width:42rem;margin-top:.6rem}
.forest{width:100%;max-width:42rem;height:auto;display:block;font:11px system-ui,sans-serif}
.forest .label{fill:var(--ink);font-weight:600}
.forest .tick{fill:var(--soft);text-anchor:middle;font-size:9px}
.forest .side{fill:var(--soft);font-size:9px}
.forest .end{text-anchor:end}
.forest .grid{stroke:var(--line);stroke-width:.5}
.forest .zero{stroke:var(--soft)}
.forest .rule{stroke:var(--line)}
.forest .loss{fill:var(--loss)}
.forest .margin{stroke:var(--fail);stroke-dasharray:3 2}
.forest .interval,.forest .arrow{stroke:currentColor;stroke-width:2;fill:none}
.forest .mark{fill:currentColor;stroke:currentColor}
.forest .open{fill:var(--paper);stroke-width:2}
.scroll{overflow-x:auto}
table{border-collapse:collapse;width:100%;font-size:.9rem}
caption{text-align:left;color:var(--soft);padding-bottom:.3rem}
th,td{text-align:left;vertical-align:top;padding:.4rem .6rem;border-bottom:1px solid var(--line);overflow-wrap:anywhere}
thead th{background:var(--tint);overflow-wrap:normal}
@media (max-width:40rem){
table,tbody,tr,th,td,caption{display:block}
thead{position:absolute;width:1px;height:1px;overflow:hidden;clip-path:inset(50%)}
tr{border:1px solid var(--line);border-radius:.4rem;margin-bottom:.6rem}
tbody th{background:var(--tint)}
td{display:grid;grid-template-columns:8rem 1fr;gap:.5rem}
td::before{content:attr(data-name);color:var(--soft)}
}
@media print{body{font-size:11px}.scroll{overflow:visible}section{break-inside:avoid}}
"""
