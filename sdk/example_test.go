package sdk_test

import (
	"context"
	"fmt"
	"log"

	"github.com/agbox-dev/agbox/sdk"
)

func Example() {
	ctx := context.Background()
	client, err := sdk.New()
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	box, err := client.CreateSandbox(ctx, sdk.Spec{Image: "agbox-demo/debian"})
	if err != nil {
		log.Fatal(err)
	}
	defer client.Delete(ctx, box.ID)
	result, err := client.Run(ctx, box.ID, []string{"sh", "-c", "echo hello from $(hostname)"})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("exit %d: %s", result.ExitCode, result.Stdout)
}
