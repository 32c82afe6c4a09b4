// The main flow, by the client that oapi-codegen has generated: flow ADDRESS TOKEN
package main

import (
	"context"
	"net/http"
	"os"
	"strings"
)

const definition = "//node[@class='display']"

func check(is bool, said string) {
	if !is {
		panic(said)
	}
}

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

func main() {
	address, token := os.Args[1], os.Args[2]
	ctx := context.Background()
	client := must(NewClientWithResponses(address, WithRequestEditorFn(
		func(_ context.Context, request *http.Request) error {
			request.Header.Set("Authorization", "Bearer "+token)
			return nil
		})))
	cluster := must(client.ClustersCreateWithResponse(ctx, nil, ClustersCreateJSONRequestBody{Name: "north"}))
	check(cluster.StatusCode() == 201, string(cluster.Body))
	imported := must(client.NodesImportWithBodyWithResponse(ctx, "application/x-ndjson",
		strings.NewReader("{\"system_id\": \"m0\"}\n{\"system_id\": \"m1\"}\n"),
		func(_ context.Context, request *http.Request) error {
			// It would read lines of JSON as one value.
			request.Header.Set("Accept", "application/octet-stream")
			return nil
		}))
	check(strings.Contains(string(imported.Body), `"created":2`), string(imported.Body))
	stored := must(client.NodesDocumentUpdateWithBodyWithResponse(ctx, "m1", nil, "application/xml",
		strings.NewReader("<list><node class='display'/></list>")))
	check(stored.StatusCode() == 200, string(stored.Body))
	text := definition
	made := must(client.TagsCreateWithResponse(ctx, nil,
		TagsCreateJSONRequestBody{Name: "gpu", Definition: &text}))
	check(made.StatusCode() == 201, string(made.Body))
	wait := "wait=60"
	tag := must(client.TagsRetrieveWithResponse(ctx, "gpu", &TagsRetrieveParams{Prefer: &wait}))
	check(tag.StatusCode() == 200, string(tag.Body))
	check(tag.JSON200.State == "ready" && tag.JSON200.NodeCount == 1, string(tag.Body))
	nodes := must(client.TagsNodesListWithResponse(ctx, "gpu", nil))
	check(nodes.JSON200.Results[0].SystemId == "m1", string(nodes.Body))
	preview := must(client.PreviewsCreateWithResponse(ctx, nil,
		PreviewsCreateJSONRequestBody{Definition: "//node"}))
	check(preview.StatusCode() == 200 || preview.StatusCode() == 202, string(preview.Body))
	why := must(client.DefinitionsExplainWithResponse(ctx, nil,
		DefinitionsExplainJSONRequestBody{Definition: definition, Node: "m1"}))
	check(why.StatusCode() == 200 && why.JSON200.Verdict, string(why.Body))
	begun := must(client.TagsRebuildWithResponse(ctx, "gpu", nil))
	check(begun.StatusCode() == 202, string(begun.Body))
	rebuild := must(client.RebuildsRetrieveWithResponse(ctx, begun.JSON202.Uuid,
		&RebuildsRetrieveParams{Prefer: &wait}))
	check(rebuild.StatusCode() == 200 && rebuild.JSON200.State == "complete", string(rebuild.Body))
	check(must(client.TagsDestroyWithResponse(ctx, "gpu", nil)).StatusCode() == 204, "the tag is deleted")
	for _, name := range []string{"m0", "m1"} {
		check(must(client.NodesDestroyWithResponse(ctx, name, nil)).StatusCode() == 204, "a node is deleted")
	}
	missing := must(client.NodesRetrieveWithResponse(ctx, "m0"))
	check(missing.StatusCode() == 404, string(missing.Body))
	gone := must(client.ClustersDestroyWithResponse(ctx, cluster.JSON201.Uuid.String(), nil))
	check(gone.StatusCode() == 204, string(gone.Body))
}
