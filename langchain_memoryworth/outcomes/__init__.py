"""Where outcomes come from: functions of a finished run, evaluators, feedback services, and credit by use."""
