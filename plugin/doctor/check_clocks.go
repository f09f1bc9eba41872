package doctor

import (
	"fmt"
	"time"
)

// clockTolerance is the difference from which on tokens and certificates are refused, and the lag of replication is computed wrong. The
// header Date, from which the difference is computed, has seconds.
const clockTolerance = 5 * time.Second

// clocks finds servers whose clock differs from that of this machine. If all do, this machine is wrong; if there is
// only one, it may be either.
func clocks(facts *Facts, _ Limits) []Finding {
	var found []Finding
	asked := 0
	for _, server := range facts.servers() {
		if server.Reachable {
			asked++
		}
		if !isOff(server) {
			continue
		}
		where := "ahead of"
		if server.ClockOffset < 0 {
			where = "behind"
		}
		found = append(found, Finding{
			Severity: SeverityError, Object: server.Name, Message: fmt.Sprintf("its clock is %s %s that of this machine", server.ClockOffset.Abs().Round(time.Second), where),
			NextStep: "Repair time synchronization on the node of the server",
		})
	}
	if len(found) == 1 && asked == 1 {
		found[0].Severity, found[0].Object, found[0].Message = SeverityWarning, "this machine", "the clock of this machine or of the "+found[0].Object+" is wrong: "+found[0].Message
		found[0].NextStep = "Repair time synchronization on the one that is wrong"
		return found
	}
	if len(found) == asked && asked > 1 {
		return []Finding{{
			Severity: SeverityWarning, Object: "this machine", Message: fmt.Sprintf("its clock differs from those of all %d servers", asked),
			NextStep: "Repair time synchronization on this machine, and repeat the command: until then, it cannot compare the clocks of servers",
		}}
	}
	return found
}

func isOff(server Server) bool {
	return server.Reachable && server.ClockOffset.Abs()-server.Uncertainty > clockTolerance
}
