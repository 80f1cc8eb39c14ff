"""Check the dashboards in deploy/grafana/ against Grafana's own types, from its npm package.

    .venv/bin/python tools/check_dashboards.py

This needs node and npm, and installs two packages into a temporary folder. The types cover every field of a
dashboard, of its variables, and of the options of the panels that we use, but cannot tell whether a query or
a transformation makes sense.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

PACKAGES = ("@grafana/schema@13.2.3", "typescript@5.9.3")
DASHBOARDS = Path(__file__).parents[1] / "deploy" / "grafana" / "dashboards"
# The panel types that we use, and the modules that define their options.
_PANELS = {"stat": "Stat", "table": "Table", "timeseries": "TimeSeries"}
_TYPES = """
import type {{ Dashboard, DataQuery, FieldConfig, FieldConfigSource, Panel, RowPanel }}
  from '@grafana/schema';
{imports}
// JSON has strings where TypeScript has enum names.
type Plain<T> = T extends string ? `${{T}}` : T extends number | boolean | null | undefined ? T :
  T extends (infer U)[] ? Plain<U>[] : T extends object ? {{ [K in keyof T]: Plain<T[K]> }} : T;
// The package does not include Prometheus' plugin, so these are the query fields that we use.
interface Query extends DataQuery {{
  expr: string; instant: boolean; range: boolean; legendFormat?: string; format?: 'table'; editorMode: 'code';
}}
type Of<Name, Options, Custom> = Omit<Panel, 'type' | 'options' | 'fieldConfig' | 'targets'> & {{
  type: Name; options: Partial<Options>; targets: Query[];
  fieldConfig: Omit<FieldConfigSource, 'defaults'> & {{
    defaults: Omit<FieldConfig, 'custom'> & {{ custom?: Partial<Custom> }} }};
}};
type Any = {union} | RowPanel;
export const dashboard: Plain<Omit<Dashboard, 'panels'> & {{ panels: Any[] }}> = {dashboard};
"""
_OPTIONS = (
    "--strict",
    "--noEmit",
    "--skipLibCheck",
    "--module",
    "nodenext",
    "--moduleResolution",
    "nodenext",
)


def _source(path: Path) -> str:
    # What an import reads and removes, and the types do not know, begins with two underscores.
    fields = json.loads(path.read_text())
    dashboard = json.dumps({name: value for name, value in fields.items() if not name.startswith("__")})
    where = "@grafana/schema/dist/esm/raw/composable"
    imports = [
        f"import type * as {name} from '{where}/{kind}/panelcfg/x/{name}PanelCfg_types.gen';"
        for kind, name in _PANELS.items()
    ]
    custom = {"stat": "{}", "table": "Table.FieldConfig", "timeseries": "TimeSeries.FieldConfig"}
    union = " | ".join(f"Of<'{kind}', {name}.Options, {custom[kind]}>" for kind, name in _PANELS.items())
    return _TYPES.format(imports="\n".join(imports), union=union, dashboard=dashboard)


def main() -> int:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "package.json").write_text('{"private": true, "type": "module"}')
        subprocess.run(["npm", "install", "--silent", "--ignore-scripts", *PACKAGES], cwd=folder, check=True)
        files = {f"{path.stem}.ts": _source(path) for path in DASHBOARDS.glob("*.json")}
        for file, text in files.items():
            (folder / file).write_text(text)
        return subprocess.run(["npx", "tsc", *_OPTIONS, *files], cwd=folder, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
