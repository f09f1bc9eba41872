package main

type object = map[string]any

// dashboard is the content of one dashboard.
type dashboard struct {
	name, title string
	// job is the value of the label job that the dashboard selects.
	job  string
	rows []row
}

// row is a line of panels under a title.
type row struct {
	title  string
	panels []panel
}

// panel is a diagram of one or more queries.
type panel struct {
	title, unit string
	// help describes how to read the panel.
	help    string
	queries []query
}

type query struct{ expr, legend string }

const (
	width, height = 24, 8
	// perRow is the number of panels beside each other.
	perRow = 3
)

var datasource = object{"type": "prometheus", "uid": "${datasource}"}

// render returns the JSON model of Grafana.
func render(d dashboard) object {
	panels, id, y := []object{}, 0, 0
	for _, r := range d.rows {
		id++
		panels = append(panels, object{"id": id, "type": "row", "title": r.title, "collapsed": false, "panels": []object{}, "gridPos": object{"h": 1, "w": width, "x": 0, "y": y}})
		y++
		for i, p := range r.panels {
			id++
			at := object{"h": height, "w": width / perRow, "x": i % perRow * width / perRow, "y": y + i/perRow*height}
			panels = append(panels, renderPanel(p, id, at))
		}
		y += (len(r.panels) + perRow - 1) / perRow * height
	}
	return object{
		"uid": "atoll-" + d.name, "title": d.title, "tags": []string{"atoll", "kcp"}, "schemaVersion": 41, "version": 1, "editable": true,
		"graphTooltip": 1, "refresh": "30s", "time": object{"from": "now-1h", "to": "now"}, "timezone": "browser",
		"templating": object{"list": []object{
			{"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus"},
			{
				"name": "instance", "label": "Instance", "type": "query", "datasource": datasource, "refresh": 2, "multi": true, "includeAll": true, "allValue": ".*",
				"current": object{"text": "All", "value": "$__all"}, "definition": "label_values(up{job=\"" + d.job + "\"}, instance)",
				"query": object{"query": "label_values(up{job=\"" + d.job + "\"}, instance)", "refId": "instances"},
			},
		}},
		"links":  []object{{"title": "Runbooks", "type": "link", "url": "https://github.com/atoll-dev/atoll/blob/main/docs/alerts.md", "targetBlank": true}},
		"panels": panels,
	}
}

func renderPanel(p panel, id int, at object) object {
	targets := make([]object, len(p.queries))
	for i, q := range p.queries {
		targets[i] = object{"refId": string(rune('A' + i)), "expr": q.expr, "legendFormat": q.legend, "datasource": datasource}
	}
	return object{
		"id": id, "type": "timeseries", "title": p.title, "description": p.help, "datasource": datasource, "gridPos": at, "targets": targets,
		"fieldConfig": object{"defaults": object{"unit": p.unit, "min": 0, "custom": object{"lineWidth": 1, "fillOpacity": 10, "showPoints": "never"}}, "overrides": []object{}},
		"options":     object{"legend": object{"displayMode": "list", "placement": "bottom"}, "tooltip": object{"mode": "multi", "sort": "desc"}},
	}
}
