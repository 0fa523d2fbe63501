package apiserver

import (
	"encoding/json"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"proa/api"
)

// table shows objects as the rows of a table.
func (x *exchange) table(v *served, objects []*object, version string, headers bool) (*metav1.Table, error) {
	include := metav1.IncludeObjectPolicy(x.r.URL.Query().Get("includeObject"))
	switch include {
	case "":
		include = metav1.IncludeMetadata
	case metav1.IncludeNone, metav1.IncludeMetadata, metav1.IncludeObject:
	default:
		return nil, apierrors.NewBadRequest("unrecognized includeObject value: \"" + string(include) + "\"")
	}
	t := &metav1.Table{TypeMeta: metav1.TypeMeta{Kind: "Table", APIVersion: metav1.GroupName + "/" + version}}
	columns, cells := v.Columns, v.Cells
	if columns == nil || cells == nil {
		columns = []api.Column{api.NameColumn(), {Name: "Created At", Type: "date", Description: api.AgeColumn().Description}}
		cells = func(obj api.Object, _ time.Time) []any {
			return []any{obj.GetName(), obj.GetCreationTimestamp().UTC().Format(time.RFC3339)}
		}
	}
	t.ColumnDefinitions = []metav1.TableColumnDefinition{}
	if headers {
		for _, c := range columns {
			t.ColumnDefinitions = append(t.ColumnDefinitions, metav1.TableColumnDefinition{
				Name: c.Name, Type: c.Type, Format: c.Format, Description: c.Description, Priority: c.Priority})
		}
	}
	at := time.Now()
	t.Rows = make([]metav1.TableRow, 0, len(objects))
	for _, o := range objects {
		row := metav1.TableRow{Cells: cells(o.Object, at)}
		switch include {
		case metav1.IncludeMetadata:
			partial := partialOf(o.Object)
			partial.SetGroupVersionKind(metaKind(version, "PartialObjectMetadata"))
			data, err := json.Marshal(partial)
			if err != nil {
				return nil, err
			}
			row.Object = runtime.RawExtension{Raw: data}
		case metav1.IncludeObject:
			data, err := wholeObject(format{}, v, o)
			if err != nil {
				return nil, err
			}
			row.Object = runtime.RawExtension{Raw: data}
		}
		t.Rows = append(t.Rows, row)
	}
	return t, nil
}
