package opentofu

import (
	"maps"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclparse"
	"github.com/zclconf/go-cty/cty"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// declarations are the variables and outputs that a module declares.
type declarations struct {
	variables map[string]variable
	outputs   map[string]output
}

type variable struct{ required bool }

type output struct{ sensitive bool }

// rootSchema describes the blocks of a module.
var rootSchema = &hcl.BodySchema{Blocks: []hcl.BlockHeaderSchema{
	{Type: "terraform"}, {Type: "language"}, {Type: "required_providers"}, {Type: "provider", LabelNames: []string{"name"}}, {Type: "locals"},
	{Type: "variable", LabelNames: []string{"name"}}, {Type: "output", LabelNames: []string{"name"}}, {Type: "module", LabelNames: []string{"name"}},
	{Type: "resource", LabelNames: []string{"type", "name"}}, {Type: "data", LabelNames: []string{"type", "name"}},
	{Type: "ephemeral", LabelNames: []string{"type", "name"}}, {Type: "moved"}, {Type: "import"}, {Type: "removed"},
	{Type: "check", LabelNames: []string{"name"}},
}}

// nestedSchemas describe the parts of blocks that inspect checks.
var nestedSchemas = map[string]*hcl.BodySchema{
	"terraform": {Blocks: []hcl.BlockHeaderSchema{{Type: "backend", LabelNames: []string{"type"}}, {Type: "cloud"}, {Type: "encryption"}}},
	"variable":  {Attributes: []hcl.AttributeSchema{{Name: "default"}}},
	"output":    {Attributes: []hcl.AttributeSchema{{Name: "sensitive"}}},
	"resource":  {Blocks: []hcl.BlockHeaderSchema{{Type: "provisioner", LabelNames: []string{"type"}}}},
	"removed":   {Blocks: []hcl.BlockHeaderSchema{{Type: "provisioner", LabelNames: []string{"type"}}}},
	"check":     {Blocks: []hcl.BlockHeaderSchema{{Type: "data", LabelNames: []string{"type", "name"}}}},
}

// inspect parses the files of a module. It refuses blocks that would store the state elsewhere. Unless unrestricted is set, it also refuses
// blocks that run programs or load modules, which cannot be checked in advance. It does not detect providers that run programs: see
// docs/threat-model-gaps.md.
func inspect(files map[string]string, path *field.Path, unrestricted bool) (*declarations, field.ErrorList) {
	i := &inspection{declarations: &declarations{map[string]variable{}, map[string]output{}}, unrestricted: unrestricted}
	parser := hclparse.NewParser()
	for _, name := range slices.Sorted(maps.Keys(files)) {
		i.path = path.Key(name)
		var file *hcl.File
		var problems hcl.Diagnostics
		switch stem := strings.TrimSuffix(name, ".json"); {
		case !strings.HasSuffix(stem, ".tf") && !strings.HasSuffix(stem, ".tofu"):
			continue
		case stem != name:
			file, problems = parser.ParseJSON([]byte(files[name]), name)
		default:
			file, problems = parser.ParseHCL([]byte(files[name]), name)
		}
		if i.report(problems) {
			continue
		}
		content, problems := file.Body.Content(rootSchema)
		if i.report(problems) {
			continue
		}
		for _, block := range content.Blocks {
			i.block(block)
		}
	}
	return i.declarations, i.errs
}

// inspection is the state of the inspection of several files.
type inspection struct {
	*declarations
	unrestricted bool
	path         *field.Path
	errs         field.ErrorList
}

// report adds the problems of a file, and reports whether there are errors.
func (i *inspection) report(problems hcl.Diagnostics) bool {
	for _, problem := range problems.Errs() {
		i.errs = append(i.errs, field.Invalid(i.path, field.OmitValueType{}, problem.Error()))
	}
	return problems.HasErrors()
}

func (i *inspection) forbid(block *hcl.Block, reason string) {
	i.errs = append(i.errs, field.Forbidden(i.path, block.DefRange.String()+": "+reason))
}

const asksOperator = "; the platform operator can allow it for all templates"

// block checks a block of the root.
func (i *inspection) block(block *hcl.Block) {
	nested := &hcl.BodyContent{}
	if schema := nestedSchemas[block.Type]; schema != nil {
		var problems hcl.Diagnostics
		if nested, _, problems = block.Body.PartialContent(schema); i.report(problems) {
			return
		}
	}
	switch block.Type {
	case "variable":
		i.variables[block.Labels[0]] = variable{required: nested.Attributes["default"] == nil}
	case "output":
		i.outputs[block.Labels[0]] = output{sensitive: isTrue(nested.Attributes["sensitive"])}
	case "module":
		if !i.unrestricted {
			i.forbid(block, "a module that is loaded when it is used cannot be checked before"+asksOperator)
		}
	case "data":
		i.data(block)
	}
	for _, inner := range nested.Blocks {
		switch inner.Type {
		case "backend", "cloud", "encryption":
			i.forbid(inner, "the state is kept by the backend")
		case "provisioner":
			if !i.unrestricted {
				i.forbid(inner, "a provisioner runs programs where the credentials of runs are"+asksOperator)
			}
		case "data":
			i.data(inner)
		}
	}
}

// data refuses the data source that runs programs.
func (i *inspection) data(block *hcl.Block) {
	if block.Labels[0] == "external" && !i.unrestricted {
		i.forbid(block, "data of external runs programs where the credentials of runs are"+asksOperator)
	}
}

// isTrue reports whether an attribute is true without the values of variables.
func isTrue(attribute *hcl.Attribute) bool {
	if attribute == nil {
		return false
	}
	value, problems := attribute.Expr.Value(nil)
	return !problems.HasErrors() && value.IsKnown() && value.RawEquals(cty.True)
}
