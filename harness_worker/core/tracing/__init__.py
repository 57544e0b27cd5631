"""An ended turn as an OpenTelemetry trace, made from its journal."""
