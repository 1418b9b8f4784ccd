"""Programs that tests start as processes of their own, with arguments: see `helpers.processes.program`."""
