package subscriber

import (
	"context"
	"log/slog"
)

// LoggerOrDefault is where a library logs that was given log. If that is nil it is
// slog.Default() as it is now, for WARN and above: without any setting an application logs
// what is wrong, and nothing else.
func LoggerOrDefault(log *slog.Logger) *slog.Logger {
	if log != nil {
		return log
	}
	return slog.New(warnings{slog.Default().Handler()})
}

// warnings is a handler without what is below WARN.
type warnings struct{ slog.Handler }

func (h warnings) Enabled(ctx context.Context, level slog.Level) bool {
	return level >= slog.LevelWarn && h.Handler.Enabled(ctx, level)
}

func (h warnings) WithAttrs(attrs []slog.Attr) slog.Handler {
	return warnings{h.Handler.WithAttrs(attrs)}
}

func (h warnings) WithGroup(name string) slog.Handler { return warnings{h.Handler.WithGroup(name)} }
