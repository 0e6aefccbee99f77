package assigner

import (
	"strings"
	"testing"
	"testing/synctest"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// What tasks use and how many of them are wanted is told of those that live; as long as none
// tells its CPU, no number is wanted.
func TestWantedIsTold(t *testing.T) {
	virtually(t, func(t *testing.T, start func(Config) *node) {
		reg := prometheus.NewPedanticRegistry()
		n := start(Config{Registerer: reg})
		n.put(&slicerv1.JobConfig{Name: "job", TargetUtilization: .3})
		d := n.attach("d1")
		d.preferred("job", "a1")
		d.want(&slicerv1.Want{Job: "job"})
		const help = `# HELP slicer_assigner_served_cpu_cores CPU that the tasks of a job use together, in cores: what Slicer's own is to be compared with.
# TYPE slicer_assigner_served_cpu_cores gauge
slicer_assigner_served_cpu_cores{assigner="a1",job="job"} CORES
# HELP slicer_assigner_served_memory_bytes Resident memory of the tasks of a job together.
# TYPE slicer_assigner_served_memory_bytes gauge
slicer_assigner_served_memory_bytes{assigner="a1",job="job"} BYTES
`
		const wanted = `# HELP slicer_assigner_wanted_tasks Tasks that a job would need for its target_utilization; absent while its tasks tell no CPU.
# TYPE slicer_assigner_wanted_tasks gauge
slicer_assigner_wanted_tasks{assigner="a1",job="job"} WANTED
`
		show := func(when, cores, bytes, tasks string) {
			t.Helper()
			synctest.Wait()
			want := strings.NewReplacer("CORES", cores, "BYTES", bytes).Replace(help)
			if tasks != "" {
				want += strings.Replace(wanted, "WANTED", tasks, 1)
			}
			if err := testutil.GatherAndCompare(reg, strings.NewReader(want), "slicer_assigner_wanted_tasks", "slicer_assigner_served_cpu_cores", "slicer_assigner_served_memory_bytes"); err != nil {
				t.Errorf("%s: %v", when, err)
			}
		}
		t1, t2 := task("t1", 1), task("t2", 1)
		d.reports("job", true, t1, t2)
		d.beat(5, t1, t2)
		show("nothing is told", "0", "0", "")
		load := func(task *slicerv1.Task) *slicerv1.TaskReport {
			d.seq[task.Name]++
			return &slicerv1.TaskReport{Task: task, Report: &slicerv1.Report{Sequence: d.seq[task.Name], State: task.State,
				Load: &slicerv1.LoadReport{WindowSeconds: 1, CpuUtilization: .5, CpuCores: 2, MemoryBytes: 1 << 20}}}
		}
		d.say(&slicerv1.AttachRequest{Message: &slicerv1.AttachRequest_Reports{Reports: &slicerv1.TaskReports{Job: "job", Reports: []*slicerv1.TaskReport{load(t1), load(t2)}}}})
		show("two tasks of half a machine", "4", "2.097152e+06", "4")
		resp, err := n.admin.InspectJob(t.Context(), &slicerv1.InspectJobRequest{Job: "job"})
		if err != nil || resp.WantedTasks != 4 || resp.Tasks[0].CpuCores != 2 || resp.Tasks[0].MemoryBytes != 1<<20 {
			t.Errorf("inspect: %v, %v", resp, err)
		}
		d.beat(20, t1)
		show("one has died", "2", "1.048576e+06", "2")
	})
}
