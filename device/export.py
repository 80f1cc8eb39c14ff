"""Write the last reports, the consent and the budget as JSON, for the board's owner. Spends nothing.

last_reports = preview.LastReports()
reporter.on_report = last_reports
print(export(client, last_reports))
"""

import json


def export(client, last):
    """Return the last reports, the consent and the budget as JSON, for the board's owner.

    Args:
        client: The ldp_client.Client.
        last: The LastReports.
    """
    status = client.status()
    experiments = {}
    for name in client._policy["experiments"]:
        line = status["experiments"][name]
        numbers = {"epsilon": line.get("epsilon", 0), "reports": line["reports"], "left": line["left"] or 0}
        experiments[name] = numbers
    fields = {"v": 1, "device": client.device_id, "consent": status["consent"]}
    fields["locked"] = status["locked"] is not None
    fields["sum"], fields["squares"] = status["sum"], status["squares"]
    fields["experiments"] = experiments
    fields["last"] = last.lines
    return json.dumps(fields)
