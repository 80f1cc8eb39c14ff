"""Examples for each page of help: commands as they are pasted, by the path of their command."""

EXAMPLES: dict[str, tuple[str, ...]] = {
    "demo": (
        "hushmote demo",
        "hushmote demo --devices 2000 --broker embedded",
        "hushmote demo --question pairs",
        "hushmote demo --board",
    ),
    "simulate": (
        "hushmote simulate room_temp.toml --population normal:21:3",
        "hushmote simulate room_temp.toml --days 30 --to sqlite:///hushmote.sqlite",
    ),
    "plan": (
        "hushmote plan",
        "hushmote plan --devices 20000 --values 64 --error 0.01",
        "hushmote plan --devices 2000 --values 64 --lifetime 4 --horizon 2y --call 1h",
    ),
    "mechanisms": ("hushmote mechanisms",),
    "epsilon": ("hushmote epsilon 64 --risk 0.05", "hushmote epsilon room_temp.toml --risk 0.05"),
    "budget histogram": ("hushmote budget histogram --devices 100000 --epsilon 0.1",),
    "budget compare": (
        "hushmote budget compare --total 2 --reports 20",
        "hushmote budget compare --total 2 --delta 1e-6 --epsilon 0.1",
    ),
    "budget policy": ("hushmote budget policy --epsilon 2 --experiments room_temp,door_open",),
    "provision fleet": (
        "hushmote provision fleet fleet-home --host broker.example --host 10.0.0.5",
        "hushmote provision fleet fleet-home --host broker.example --aggregators 3",
        "hushmote provision fleet fleet-home --host b.example --set port=8884",
    ),
    "provision device": (
        "hushmote provision device --folder fleet-home --wifi-ssid Home",
        "hushmote provision device --open --broker mqtt://10.0.0.5 --wifi-ssid Home",
    ),
    "provision upgrade": ("hushmote provision upgrade --folder fleet-home",),
    "provision revoke": ("hushmote provision revoke k3f9x1 --folder fleet-home",),
    "provision forget": (
        "hushmote provision forget k3f9x1 --folder fleet-home",
        "hushmote provision forget k3f9x1 --folder fleet-home --yes --json",
    ),
    "provision list": (
        "hushmote provision list --folder fleet-home",
        "hushmote provision list --allow k3f9x1 --allow 5620b8f87aca3592",
        "hushmote provision list --allow @ids.txt --listed",
    ),
    "provision rotate": (
        "hushmote provision rotate broker b.example new.example --folder fleet-home",
        "hushmote provision rotate aggregator --folder fleet-home",
        "hushmote provision rotate aggregator --folder fleet-home --finish",
        "hushmote provision rotate new-aggregator --folder fleet-home",
        "hushmote provision rotate devices k3f9x1 --folder fleet-home",
        "hushmote provision rotate door --folder fleet-home",
    ),
    "provision keys": ("hushmote provision keys master.key",),
    "experiment sign": (
        "hushmote experiment sign room_temp.toml --folder fleet-home",
        "hushmote experiment sign room_temp.toml --signing-key signing.key",
    ),
    "experiment show": ("hushmote experiment show room_temp.toml",),
    "experiment add": (
        "hushmote experiment add room_temp.toml --fleet home --keys",
        "hushmote experiment add room_temp.signed.json --keys",
        "hushmote experiment add room_temp.toml --grace 7",
    ),
    "experiment list": ("hushmote experiment list",),
    "experiment withdraw": ("hushmote experiment withdraw room_temp",),
    "serve": (
        "hushmote serve --master-key master.key --signing-key signing.key",
        "hushmote serve --broker fleet-home/aggregator/aggregator_1.toml",
    ),
    "door": ("hushmote door", "hushmote door --broker door.toml --http 0.0.0.0:9418 --token-file door.token"),
    "status": (
        "hushmote status",
        "hushmote status --follow --aggregator http://127.0.0.1:9417",
        "hushmote status --broker mqtt://me@broker.example",
    ),
    "flash": (
        "hushmote flash /dev/ttyACM0 k3f9x1.settings.json",
        "hushmote flash COM3 k3f9x1.settings.json --main my_application.py",
    ),
    "board": ("hushmote board", "hushmote board --storage kitchen --speed 60"),
    "check-mechanism": (
        "hushmote check-mechanism olh",
        "hushmote check-mechanism my_channel:MyChannel --json",
        "hushmote check-mechanism room_temp.toml --samples 20000 --runtime all",
        "hushmote check-mechanism --port /dev/ttyACM0",
    ),
    "ledger": (
        "hushmote ledger --policy main.py --devices 20000",
        "hushmote ledger --status status.json --per-day 0.5",
    ),
    "page": (
        "hushmote page",
        "hushmote page --aggregator http://127.0.0.1:9417",
        "hushmote page --token-file page.token --what-is-asked public.json",
    ),
    "estimate": (
        "hushmote estimate room_temp",
        "hushmote estimate room_temp --range 18:24 --quantile 0.5",
        "hushmote estimate room_temp --trend --range 24:",
        "hushmote estimate firmware --candidates versions.txt",
        "hushmote estimate crash_by_version --of crashed=yes --given version",
    ),
    "statement write": (
        "hushmote statement write --policy main.py",
        "hushmote statement write fleet-home --policy main.py --output label.html",
        "hushmote statement write --policy main.py --lang de --output de.html",
        "hushmote statement write fleet-home --policy main.py --output statement.json",
        "hushmote statement write --policy main.py --public --output public.json",
    ),
    "statement verify": ("hushmote statement verify statement.json --announce-key k3f9x1.settings.json",),
    "store upgrade": ("hushmote store upgrade sqlite:///hushmote.sqlite",),
    "store backup": ("hushmote store backup sqlite:///hushmote.sqlite monday.sqlite",),
    "store check": ("hushmote store check sqlite:///hushmote.sqlite",),
    "store erase": (
        "hushmote store erase sqlite:///hushmote.sqlite --device board-0042",
        "hushmote store erase sqlite:///hushmote.sqlite --device board-0042 --queue",
        "hushmote store erase sqlite:///hushmote.sqlite --experiment door_open --yes",
    ),
    "store seal": (
        "hushmote store seal sqlite:///hushmote.sqlite door_open",
        "hushmote store seal sqlite:///hushmote.sqlite door_open --yes",
    ),
    "store clock": (
        "hushmote store clock",
        "hushmote store clock sqlite:///hushmote.sqlite --accept",
    ),
    "store merge": (
        "hushmote store merge sqlite:///all.sqlite sqlite:///site.sqlite --dry-run",
        "hushmote store merge sqlite:///all.sqlite sqlite:///site.sqlite",
    ),
    "study": (
        "hushmote study",
        "hushmote study scale boards=2000000 every=1w",
        "hushmote study reconstruction epsilon=0.2 --seed 1 --plot reconstruction.png",
    ),
}
