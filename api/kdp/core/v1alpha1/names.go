package v1alpha1

// Annotations of the APIExport of a Service, for catalogues and for the agent.
const (
	// APIGroupAnnotationKey contains the API group that the Service publishes in.
	APIGroupAnnotationKey = GroupName + "/api-group"
	// TitleAnnotationKey contains the title of the catalogue entry.
	TitleAnnotationKey = GroupName + "/title"
	// DescriptionAnnotationKey contains its description, in Markdown.
	DescriptionAnnotationKey = GroupName + "/description"
	// DocumentationURLAnnotationKey contains the URL of its documentation.
	DocumentationURLAnnotationKey = GroupName + "/documentation-url"
	// LogoAnnotationKey contains its picture, a URL.
	LogoAnnotationKey = GroupName + "/logo"
)

// ManagedLabelKey is on everything that is made for a Service; its value is "true". The owner reference names the Service.
const ManagedLabelKey = GroupName + "/managed"
